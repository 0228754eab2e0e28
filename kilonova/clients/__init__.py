"""The neighbours: one Protocol and one implementation for each, and fakes in memory that pass the same tests.

What fails because a neighbour is down, slow or broken is NeighbourUnavailable, naming it; what it refuses is a kind of
ours. ``neighbours.connect`` makes all of them from the options.
"""
