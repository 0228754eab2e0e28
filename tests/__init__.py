"""The tests; see docs/map.md for what stands in which folder."""
