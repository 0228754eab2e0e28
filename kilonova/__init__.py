"""Kilonova: a compute cloud that speaks the OpenStack Compute API.

The package imports nothing here, so that each program loads only its own layer; docs/map.md says what is where.
"""

__version__ = "0.1.0"
