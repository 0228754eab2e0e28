"""The programs, and the one place that wires services together."""
