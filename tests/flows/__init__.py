"""Sweeps of flows: every failure and every crash."""
