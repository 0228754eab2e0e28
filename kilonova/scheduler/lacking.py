"""Why Placement named nobody: ask again with one constraint less at a time, and see which one it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from kilonova.scheduler.query import Query


def explain(query: Query, any_candidate: Callable[[Query], bool]) -> list[str]:
    """Texts for people. Costs one small question per constraint, and is asked only when there is no candidate."""
    alone = [text for text, without in _without_each(query) if any_candidate(without)]
    if alone:
        return alone
    each = [text for text, only in _each_alone(query) if not any_candidate(only)]
    return each or ["no host has all of this at once"]


def _without_each(query: Query) -> Iterator[tuple[str, Query]]:
    for suffix, amounts in query.resources.items():
        for name, amount in amounts.items():
            rest = {rc: n for rc, n in amounts.items() if rc != name}
            if rest:
                yield f"{name} {amount}", _small(query, resources={**query.resources, suffix: rest})
    for suffix, traits in query.required.items():
        for trait in traits:
            rest_traits = [t for t in traits if t != trait]
            yield _trait(trait), _small(query, required={**query.required, suffix: rest_traits})
    if query.member_of:
        yield "the availability zone or aggregate asked for", _small(query, member_of=[])
    if query.in_tree:
        yield "the host asked for", _small(query, in_tree=None)
    if query.root_required:
        yield "a host that is not disabled", _small(query, root_required=[])


def _each_alone(query: Query) -> Iterator[tuple[str, Query]]:
    for suffix, amounts in query.resources.items():
        for name, amount in amounts.items():
            yield f"{name} {amount}", Query(resources={suffix: {name: amount}}, required={}, limit=1)


def _small(query: Query, **changes: object) -> Query:
    return msgspec.structs.replace(query, limit=1, **changes)


def _trait(trait: str) -> str:
    return f"the absence of trait {trait[1:]}" if trait.startswith("!") else f"trait {trait}"
