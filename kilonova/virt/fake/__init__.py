"""Simulated hosts: true bookkeeping, no guests. For trying things out, for tests, and as the drivers' specification."""
