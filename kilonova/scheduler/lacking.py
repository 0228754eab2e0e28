"""Why Placement named nobody: ask again with one constraint less at a time, and see which one it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from kilonova.scheduler.query import Query

ZONE = "the availability zone or aggregate asked for"
HOST = "the host asked for"
ENABLED = "a host that is not disabled"


def explain(query: Query, any_candidate: Callable[[Query], bool]) -> list[str]:
    """Texts for people. Costs one small question per constraint, and is asked only when there is no candidate.

    First: without which single constraint there would be somebody. When it takes more than one away: which of them
    nobody meets even alone.
    """
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
    if query.member_of or query.not_member_of:
        yield ZONE, _small(query, member_of=[], not_member_of=[])
    if query.in_tree:
        yield HOST, _small(query, in_tree=None)
    if query.root_required:
        yield ENABLED, _small(query, root_required=[])


def _each_alone(query: Query) -> Iterator[tuple[str, Query]]:
    """Each constraint with no other one; Placement wants some resource in each question, so it gets one unit."""
    for amounts in query.resources.values():
        for name, amount in amounts.items():
            yield f"{name} {amount}", _only({name: amount})
    unit = {name: 1 for amounts in query.resources.values() for name in list(amounts)[:1]}
    for traits in query.required.values():
        for trait in traits:
            yield _trait(trait), _only(unit, required={"": [trait]})
    if query.member_of or query.not_member_of:
        yield ZONE, _only(unit, member_of=query.member_of, not_member_of=query.not_member_of)
    if query.in_tree:
        yield HOST, _only(unit, in_tree=query.in_tree)
    if query.root_required:
        yield ENABLED, _only(unit, root_required=query.root_required)


def _only(
    amounts: dict[str, int],
    *,
    required: dict[str, list[str]] | None = None,
    root_required: list[str] | None = None,
    member_of: list[list[str]] | None = None,
    not_member_of: list[str] | None = None,
    in_tree: str | None = None,
) -> Query:
    return Query(
        resources={"": amounts},
        required=required or {},
        root_required=root_required or [],
        member_of=member_of or [],
        not_member_of=not_member_of or [],
        in_tree=in_tree,
        limit=1,
    )


def _small(query: Query, **changes: object) -> Query:
    return msgspec.structs.replace(query, limit=1, **changes)


def _trait(trait: str) -> str:
    return f"the absence of trait {trait[1:]}" if trait.startswith("!") else f"trait {trait}"
