"""One declaration per API operation; the table of them is the API.

From the table come the routes, the dispatch by microversion, decoding, policy registration, OpenAPI, and the tests
that no operation lacks a rule. ``nova-manage api list`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from kilonova.base.body import Body, Query
from kilonova.base.versions import Span, Version, span

H = TypeVar("H", bound=Callable[..., Any])


class Operation(NamedTuple):
    """What may be asked: ``action`` is the key in the body of POST /servers/{id}/action, None elsewhere."""

    method: str
    path: str
    action: str | None
    span: Span
    body: type[Body] | None
    query: type[Query] | None
    rule: str
    success: int
    refuses: frozenset[int]
    handler: Callable[..., Any]

    @property
    def name(self) -> str:
        """Its handler's name; unique together with the module."""
        return self.handler.__name__


class Table:
    """Operations by method, path and action, each with spans that do not meet."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._by_key: dict[tuple[str, str, str | None], list[Operation]] = {}

    def add(self, operation: Operation) -> None:
        """Enter one; ValueError where another answers the same request at the same version."""
        rivals = self._by_key.setdefault((operation.method, operation.path, operation.action), [])
        for rival in rivals:
            if rival.span.meets(operation.span):
                raise ValueError(f"{operation.name} and {rival.name} both answer {operation.method} {operation.path}")
        rivals.append(operation)
        self.operations.append(operation)

    def find(self, method: str, path: str, *, action: str | None, version: Version) -> Operation | None:
        """The operation that answers, None where the version has none."""
        return next((o for o in self._by_key.get((method, path, action), ()) if version in o.span), None)

    def knows(self, method: str, path: str, action: str | None = None) -> bool:
        """Whether any version answers this."""
        return (method, path, action) in self._by_key

    def paths(self) -> dict[str, set[str]]:
        """Each path with its methods."""
        found: dict[str, set[str]] = {}
        for operation in self.operations:
            found.setdefault(operation.path, set()).add(operation.method)
        return found


TABLE = Table()


def operation(
    method: str,
    path: str,
    *,
    rule: str,
    action: str | None = None,
    since: str | None = None,
    until: str | None = None,
    body: type[Body] | None = None,
    query: type[Query] | None = None,
    success: int = 200,
    refuses: Iterable[int] = (),
    table: Table = TABLE,
) -> Callable[[H], H]:
    """Declare the handler below as the answer to a request. ``rule`` is its policy; without one nothing is served.

    ``path`` is without the project segment, e.g. "/servers/{server_id}". ``body`` of an action is what stands under
    its key. ``refuses`` lists the codes it may answer besides the ones that every operation may (401, 406, 503).
    """
    if not rule:
        raise ValueError(f"{method} {path} declares no policy rule")

    def declare(handler: H) -> H:
        table.add(
            Operation(method, path, action, span(since, until), body, query, rule, success, frozenset(refuses), handler)
        )
        return handler

    return declare
