"""The little language of extra specs: ``>= 4``, ``s== text``, ``<in> part``, ``<or> a <or> b``, or the plain text."""

from __future__ import annotations

import operator
from collections.abc import Callable

_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTS: dict[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def matches(value: str, wanted: str) -> bool:
    """Whether a host's ``value`` meets what the spec wants."""
    word, _, rest = wanted.strip().partition(" ")
    rest = rest.strip()
    if word in _NUMBERS and rest:
        try:
            return _NUMBERS[word](float(value), float(rest))
        except ValueError:
            return False
    if word in _TEXTS and rest:
        return _TEXTS[word](value, rest)
    return _among(value, word, rest=rest, wanted=wanted)


def _among(value: str, word: str, *, rest: str, wanted: str) -> bool:
    if word == "<in>":
        return rest in value
    if word == "<all-in>":
        return all(part in value for part in rest.split())
    if word == "<or>":
        return value in (part.strip() for part in wanted.split("<or>") if part.strip())
    return value == wanted
