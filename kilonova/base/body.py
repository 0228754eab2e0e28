"""Request bodies and queries declared once; one strict decoder per microversion, made on demand.

A body lists its attributes as ``Annotated[type, wire(...)]``; what is outside its span at a version does not exist
there, so an unknown attribute is refused exactly where it is unknown::

    class NewServer(Body):
        name: Name
        flavor: Annotated[str, wire("flavorRef")]
        description: Annotated[str | None | UnsetType, wire(since="2.19")] = UNSET

Bodies may hold bodies, in lists and unions too. A class with ``forbid_unknown = False`` drops unknown attributes.
Handlers always get the newest shape; attributes that the version lacks have their defaults.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin

import msgspec

from kilonova.base.errors import BadRequest, ValidationFailed
from kilonova.base.versions import Span, Version, span

B = TypeVar("B", bound="Body")


class Wire(msgspec.Struct, frozen=True):
    """How one attribute travels: its JSON name, the microversions that know it, and a further check.

    ``check`` gets the value and returns it (perhaps mended) or raises ValueError with a text for people.
    """

    name: str | None = None
    span: Span = Span()
    required_since: Version | None = None
    required_until: Version | None = None
    check: Callable[[Any], Any] | None = None


def wire(
    name: str | None = None,
    *,
    since: str | None = None,
    until: str | None = None,
    required_since: str | None = None,
    required_until: str | None = None,
    check: Callable[[Any], Any] | None = None,
) -> Wire:
    """Say how an attribute travels; see ``Wire``."""
    return Wire(
        name,
        span(since, until),
        Version.parse(required_since) if required_since else None,
        Version.parse(required_until) if required_until else None,
        check,
    )


class Body(msgspec.Struct, kw_only=True):
    """Base of all request bodies. ``nullable``: null is taken too, and handed to the handler as None."""

    forbid_unknown: ClassVar[bool] = True
    nullable: ClassVar[bool] = False

    @classmethod
    def decode(cls, raw: object, version: Version, *, lax: bool = False) -> Self:
        """The body from JSON values already parsed; BadRequest that names the attribute where it does not fit.

        ``lax``: unknown attributes are dropped (the legacy endpoint).
        """
        try:
            wired = msgspec.convert(raw, type=shape(cls, version, lax))
        except msgspec.ValidationError as error:
            raise explain(str(error), raw) from None
        return typing.cast(Self, _lift(wired, raw))

    @classmethod
    def json_schema(cls, version: Version) -> dict[str, Any]:
        """JSON Schema of the body at ``version``."""
        return msgspec.json.schema(shape(cls, version))


_origin: dict[type, type[Body]] = {}


@functools.cache
def shape(cls: type[Body], version: Version, lax: bool = False) -> type[msgspec.Struct]:
    """The struct type that ``cls`` is at ``version``: fields outside their span do not exist."""
    fields: list[Any] = []
    rename: dict[str, str] = {}
    hints = typing.get_type_hints(cls, include_extras=True)
    for declared in msgspec.structs.fields(cls):
        hint = hints[declared.name]
        how = wire_of(hint)
        if version not in how.span:
            continue
        cut = _cut(hint, version, lax)
        if _is_required(declared, how, version):
            fields.append((declared.name, cut))
        else:
            fields.append((declared.name, Union[cut, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007 - made at run time
        if how.name:
            rename[declared.name] = how.name
    made = msgspec.defstruct(
        f"{cls.__name__}_{version.major}_{version.minor}",
        fields,
        rename=rename or None,
        kw_only=True,
        forbid_unknown_fields=cls.forbid_unknown and not lax,
    )
    _origin[made] = cls
    return made


def _is_required(declared: Any, how: Wire, version: Version) -> bool:
    if how.required_since is not None or how.required_until is not None:
        since, until = how.required_since or version, how.required_until or version
        return since <= version <= until
    return bool(declared.required)


def wire_of(hint: Any) -> Wire:
    """The ``wire(...)`` of an annotation; the default one where it has none."""
    return next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Wire)), Wire())


def _cut(hint: Any, version: Version, lax: bool) -> Any:
    """``hint`` with every body in it replaced by its shape at ``version``."""
    if isinstance(hint, type) and issubclass(hint, Body):
        return shape(hint, version, lax)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kept = [m for m in args[1:] if not isinstance(m, Wire)]
        inner = _cut(args[0], version, lax)
        return Annotated[(inner, *kept)] if kept else inner
    if origin in (Union, types.UnionType):
        return Union[tuple(_cut(a, version, lax) for a in args)]  # noqa: UP007 - made at run time
    if origin in (list, dict, tuple):
        return origin[tuple(_cut(a, version, lax) if a is not ... else a for a in args)]
    return hint


def _lift(value: Any, raw: Any) -> Any:
    """The newest shape of what was decoded, with the checks run; ``raw`` is for error texts."""
    cls = _origin.get(type(value))
    if cls is not None:
        return _lift_body(cls, value, raw)
    if isinstance(value, list):
        return [_lift(item, raw) for item in value]
    if isinstance(value, dict):
        return {key: _lift(item, raw) for key, item in value.items()}
    return value


def _lift_body(cls: type[Body], value: Any, raw: Any) -> Body:
    given = {}
    hows = wires(cls)
    for name in value.__struct_fields__:
        item = getattr(value, name)
        if item is msgspec.UNSET:
            continue
        item = _lift(item, raw)
        how = hows[name]
        if how.check is not None:
            try:
                item = how.check(item)
            except ValueError as error:
                raise ValidationFailed(field=how.name or name, value=_shown(item), reason=str(error)) from None
        given[name] = item
    return cls(**_with_absent(cls, given))


def _with_absent(cls: type[Body], given: dict[str, Any]) -> dict[str, Any]:
    """Attributes that are required in the newest version only may be absent in an older one: they are UNSET there."""
    for declared in msgspec.structs.fields(cls):
        if declared.required and declared.name not in given:
            given[declared.name] = msgspec.UNSET
    return given


@functools.cache
def wires(cls: type[Body]) -> dict[str, Wire]:
    """How each attribute of ``cls`` travels."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {f.name: wire_of(hints[f.name]) for f in msgspec.structs.fields(cls)}


def explain(text: str, raw: object) -> BadRequest:
    """The 400 for a decoder's complaint such as "Expected `int`, got `str` - at `$.server.x`"."""
    reason, _, path = text.partition(" - at `$")
    steps = re.findall(r"\[[^\]]*\]|[^.\[]+", path.rstrip("`"))
    value: Any = raw
    name = ""
    for step in steps:
        if step.startswith("["):
            index = step.strip("[]")
            value = value[int(index)] if isinstance(value, list) and index.isdigit() else None
            name = name if index in ("", "...") else f"{name}[{index}]"
        else:
            value = value.get(step) if isinstance(value, dict) else None
            name = step
    reason = _told(reason, value)
    if not name:
        return BadRequest(reason)
    return ValidationFailed(field=name, value=_shown(value), reason=reason)


_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_LENGTH = re.compile(r"Expected `(?:str|array)` of length ([<>])= \d+")
_KINDS = {"object": "object", "array": "array", "str": "string", "int": "integer", "bool": "boolean", "float": "number"}
_EXPECTED = re.compile(r"Expected `(object|array|str|int|bool|float)`, got `\w+`")


def _told(reason: str, value: Any) -> str:
    """The decoder's complaint in the words that clients of this API know."""
    if found := _MISSING.fullmatch(reason):
        return f"{found[1]!r} is a required property"
    if found := _UNKNOWN.fullmatch(reason):
        return f"Additional properties are not allowed ({found[1]!r} was unexpected)"
    if found := _LENGTH.fullmatch(reason):
        return f"{_brief(value)} is too {'long' if found[1] == '<' else 'short'}"
    if found := _EXPECTED.fullmatch(reason):
        return f"{_brief(value)} is not of type {_KINDS[found[1]]!r}"
    return reason


def _shown(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= 600 else shown[:600] + "…"


def _brief(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 200 else shown[:200] + "…"


class Query(Body):
    """Base of the query strings: every attribute is a list of texts, or a type that texts convert to.

    Declared ``list[...]`` where a parameter may be repeated; else its last value counts. Unknown parameters are
    dropped before ``strict_since`` and refused from then on (None: never refused).
    """

    forbid_unknown: ClassVar[bool] = False
    strict_since: ClassVar[str | None] = None

    @classmethod
    def read(cls, params: dict[str, list[str]], version: Version) -> Self:
        """The query from parsed parameters."""
        made = shape(cls, version)
        known = {f.encode_name: f for f in msgspec.structs.fields(made)}
        strict = cls.strict_since is not None and version >= Version.parse(cls.strict_since)
        unknown = sorted(set(params) - set(known))
        if unknown and strict:
            raise BadRequest(
                f"Additional properties are not allowed ({', '.join(map(repr, unknown))} "
                f"{'was' if len(unknown) == 1 else 'were'} unexpected)"
            )
        raw: dict[str, Any] = {}
        for name, values in params.items():
            if name in known:
                raw[name] = values if _takes_list(known[name].type) else values[-1]
        try:
            wired = msgspec.convert(raw, type=made, strict=False)
            return typing.cast(Self, _lift(wired, raw))
        except msgspec.ValidationError as error:
            fault = explain(str(error), raw)
        except ValidationFailed as failed:
            last = params.get(failed.facts["field"], [failed.facts["value"]])[-1]
            fault = ValidationFailed(**failed.facts | {"value": last})
        raise BadRequest(fault.message.replace("field/attribute", "query parameters", 1))


def _takes_list(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _takes_list(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return any(_takes_list(a) for a in get_args(hint))
    return get_origin(hint) is list
