"""The HTTP edge of the Compute API: a file or folder per resource, each with its declarations first."""
