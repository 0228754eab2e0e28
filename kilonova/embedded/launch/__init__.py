"""Programs run by the neighbours' own Python: each imports the standard library and one neighbour."""
