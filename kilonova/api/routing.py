"""From a path to its place in the table of operations. A path may carry the project's id in front."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

PROJECT = re.compile(r"[0-9a-f-]+")


class Found(NamedTuple):
    """The path as declared, the values of its parameters, and the project's id where the URL has it."""

    path: str
    params: dict[str, str]
    project: str | None = None


class _Node:
    """A place in the tree of segments; literal ones win over parameters."""

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.paths: list[str] = []


class Router:
    """Finds declared paths. Two paths may differ in the names of their parameters alone: both are candidates."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._root = _Node()
        for path in paths:
            self._add(path)

    def _add(self, path: str) -> None:
        node = self._root
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.literal.setdefault(segment, _Node())
        if path not in node.paths:
            node.paths.append(path)

    def candidates(self, path: str) -> list[Found]:
        """The declared paths that ``path`` may be, the closest first; [] for none."""
        if not path.startswith("/"):
            return []
        segments = path[1:].split("/")
        found = [Found(p, _params(p, segments)) for p in self._match(self._root, segments)]
        if len(segments) > 1 and PROJECT.fullmatch(segments[0]):
            rest = segments[1:]
            found += [Found(p, _params(p, rest), segments[0]) for p in self._match(self._root, rest)]
        return found

    def _match(self, node: _Node, segments: list[str]) -> list[str]:
        if not segments:
            return node.paths
        first, rest = segments[0], segments[1:]
        found: list[str] = []
        if first in node.literal:
            found += self._match(node.literal[first], rest)
        if first and node.any is not None:
            found += self._match(node.any, rest)
        return found


def _params(path: str, segments: list[str]) -> dict[str, str]:
    declared = path.strip("/").split("/")
    return {name[1:-1]: value for name, value in zip(declared, segments, strict=True) if name.startswith("{")}
