"""Response shapes: an ordered table of fields, cut once for a version and an occasion, then rendered by a loop.

A field whose value needs a look-up asks its page for it: ``page.load(tags_of)`` runs the batch loader ``tags_of``
once for all objects of the page, and not at all when no field shown asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kilonova.base.versions import Span, Version, span

T = TypeVar("T")
R = TypeVar("R")

OMIT: Final = object()
"""What a field's getter returns to leave its key out for this object."""


class Page(Generic[T]):
    """The objects rendered together, and what was loaded for all of them at once.

    ``env`` is whatever the loaders and getters need of the request (its stores, its link base).
    """

    def __init__(self, objects: Sequence[T], *, version: Version, env: Any = None) -> None:
        self.objects = objects
        self.version = version
        self.env = env
        self._loaded: dict[Hashable, Any] = {}

    def load(self, loader: Callable[[Page[T]], R]) -> R:
        """The result of ``loader`` for this page, computed at its first use."""
        if loader not in self._loaded:
            self._loaded[loader] = loader(self)
        found: R = self._loaded[loader]
        return found


class Field(NamedTuple):
    """One key of an answer: how to get it, at which versions, on which occasions, and for whom."""

    key: str
    get: Callable[[Any, Page[Any]], Any]
    span: Span
    rule: str | None
    only: frozenset[str] | None


def field(
    key: str,
    get: Callable[[Any, Page[Any]], Any],
    *,
    since: str | None = None,
    until: str | None = None,
    rule: str | None = None,
    only: set[str] | None = None,
) -> Field:
    """Declare a key. ``rule`` shows it only to those whom that policy allows; ``only`` names the occasions."""
    return Field(key, get, span(since, until), rule, frozenset(only) if only else None)


class View:
    """An ordered table of fields. The same key may stand more than once, with spans that do not meet."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._cuts: dict[tuple[Version, str], tuple[Field, ...]] = {}

    def cut(self, version: Version, occasion: str) -> tuple[Field, ...]:
        """The fields of ``version`` on ``occasion`` (such as "show", "detail", "list")."""
        found = self._cuts.get((version, occasion))
        if found is None:
            found = tuple(f for f in self.fields if version in f.span and (f.only is None or occasion in f.only))
            self._cuts[version, occasion] = found
        return found

    def render(
        self, page: Page[Any], *, occasion: str = "show", allows: Callable[[str], bool] = lambda rule: True
    ) -> list[dict[str, Any]]:
        """One dict for each object of the page. ``allows`` is asked once per rule."""
        shown = [f for f in self.cut(page.version, occasion) if f.rule is None or allows(f.rule)]
        rendered = []
        for thing in page.objects:
            pairs = ((f.key, f.get(thing, page)) for f in shown)
            rendered.append({key: value for key, value in pairs if value is not OMIT})
        return rendered

    def keys(self, version: Version, occasion: str = "show") -> list[str]:
        """The keys an answer may have, for documentation and tests."""
        return [f.key for f in self.cut(version, occasion)]
