"""The scheduler: asks Placement for candidates, filters and weighs them, claims the winner, and says why.

Deciding is pure: ``selection.order`` looks at host states in memory and obeys nothing but its arguments. Claims are
Placement's, so two schedulers that choose the same room find out there, and one takes the next candidate.
"""
