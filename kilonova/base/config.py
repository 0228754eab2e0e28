"""Options: typed groups over oslo.config, so that a nova.conf is read as it always was.

Each layer declares its groups in its own ``options.py``; a service gets the objects it needs, never a global CONF::

    @group("libvirt")
    class LibvirtOptions:
        bandwidth: int = option(0, min=0, help="MiB/s that a live migration may use; 0 is no limit.")

    conf = load(["/etc/nova/nova.conf"])
    options = read(LibvirtOptions, conf)      # options.bandwidth is an int
    LibvirtOptions(bandwidth=5)               # in a unit test

An attribute's type is one of str, int, float, bool, ``list[...]`` of them and ``dict[str, str]``, or one of these
``| None``. Secrets and URLs are masked wherever a group is printed.
"""

from __future__ import annotations

import configparser
import copy
import dataclasses
import difflib
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

import msgspec
from oslo_config import cfg
from oslo_config import types as oslo_types

from kilonova.base import log

T = TypeVar("T")
G = TypeVar("G")

LOG = log.of(__name__)

_URL = r"^$|^[A-Za-z][A-Za-z0-9+.-]*:"

GROUPS: dict[type, str] = {}
"""Every group declared so far in this process, with the section it is read from."""

FOREIGN = (
    "oslo_",
    "keystone",
    "service_user",
    "cors",
    "healthcheck",
    "profiler",
    "ssl",
    "privsep",
    "vif_plug",
    "os_vif",
)
"""Beginnings of sections that libraries read; what stands in them is not ours to judge."""


class Conf(cfg.ConfigOpts):
    """What ``load`` answers; libraries of OpenStack take it too.

    ``pending``: overrides of options that are not registered yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[str, object] = {}


class BadConfig(ValueError):
    """A configuration file cannot be read, or a value in it does not fit; the text names both."""


class _Declared(msgspec.Struct, frozen=True, kw_only=True):
    help: str
    name: str | None
    min: float | None
    max: float | None
    choices: tuple[str, ...] | None
    secret: bool
    url: bool
    multi: bool
    deprecated: tuple[str, ...]
    shown_default: str | None


def option(
    default: T,
    *,
    help: str,  # noqa: A002 - the word that declarations want
    name: str | None = None,
    min: float | None = None,  # noqa: A002 - the word that declarations want
    max: float | None = None,  # noqa: A002 - the word that declarations want
    choices: Sequence[str] | None = None,
    secret: bool = False,
    url: bool = False,
    multi: bool = False,
    deprecated: Sequence[str] = (),
    factory: Callable[[], T] | None = None,
    shown_default: str | None = None,
) -> T:
    """Declare an option of a group.

    ``name``: in the file, where it is not the attribute's. ``multi``: may stand more than once in the file.
    ``deprecated``: older names, ``"option"`` or ``"group.option"``. ``factory`` makes the default when it depends on
    the machine; ``shown_default`` is what the sample says then.
    """
    how = _Declared(
        help=help,
        name=name,
        min=min,
        max=max,
        choices=tuple(choices) if choices is not None else None,
        secret=secret,
        url=url,
        multi=multi,
        deprecated=tuple(deprecated),
        shown_default=shown_default,
    )
    make = factory or (lambda: copy.copy(default))
    return dataclasses.field(default_factory=make, metadata={"option": how})


@dataclass_transform(kw_only_default=True, frozen_default=True)
def group(section: str) -> Callable[[type[G]], type[G]]:
    """Make a class of ``option`` attributes the typed form of a section; its objects cannot be changed."""

    def make(cls: type[G]) -> type[G]:
        made = dataclasses.dataclass(frozen=True, kw_only=True, repr=False)(cls)
        made.__repr__ = _masked_repr  # type: ignore[method-assign]  # dataclass must not make one
        for field in dataclasses.fields(cast(Any, made)):
            if "option" not in field.metadata:
                raise TypeError(f"{cls.__name__}.{field.name} is not declared by option()")
        GROUPS[made] = section
        return made

    return make


def _masked_repr(self: Any) -> str:
    shown = []
    for field in dataclasses.fields(self):
        how: _Declared = field.metadata["option"]
        value = getattr(self, field.name)
        if how.secret and value:
            value = "***"
        elif how.url and isinstance(value, str):
            value = log.masked(value)
        shown.append(f"{field.name}={value!r}")
    return f"{type(self).__name__}({', '.join(shown)})"


def load(
    files: Iterable[str | Path] = (),
    *,
    override: Mapping[str, object] | None = None,
    groups: Iterable[type] | None = None,
) -> Conf:
    """Read configuration files, the later over the earlier; BadConfig where one cannot be read.

    ``override``: ``{"DEFAULT.host": "cmp-1"}`` stands over every file. ``groups`` (all that are declared) are
    registered at once, and options of theirs sections that nobody declares are warned of.
    """
    paths = [str(path) for path in files]
    conf = Conf()
    for path in paths:
        if not Path(path).is_file():
            raise BadConfig(f"the configuration file {path} does not exist or cannot be read")
    try:
        conf(args=[], project="nova", prog="kilonova", default_config_files=paths, default_config_dirs=[])
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{', '.join(paths)}: {error}") from None
    conf.pending = dict(override or {})
    wanted = list(GROUPS if groups is None else groups)
    for cls in wanted:
        register(cls, conf)
    for complaint in unknown(paths, wanted):
        LOG.warning("%s", complaint)
    return conf


def read(cls: type[G], conf: Conf) -> G:
    """The options of a group as they stand now; BadConfig names the option whose value does not fit."""
    register(cls, conf)
    section = GROUPS[cls]
    source = conf if section == "DEFAULT" else conf[section]
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cast(Any, cls)):
        name = _name(field)
        try:
            value = source[name]
        except (cfg.Error, ValueError) as error:
            raise BadConfig(f"[{section}] {name}: {error}") from None
        values[field.name] = value if value is not None else _default(field)
    return cls(**values)


def register(cls: type, conf: Conf) -> None:
    """Make the options of a group known to ``conf``; doing it again changes nothing."""
    section = GROUPS[cls]
    conf.register_opts(opts_of(cls), group=None if section == "DEFAULT" else section)
    apply_overrides(conf)


def apply_overrides(conf: Conf) -> None:
    """Lay the overrides given to ``load`` over options registered since (also by libraries)."""
    for key, value in list(conf.pending.items()):
        section, _, name = key.rpartition(".")
        try:
            conf.set_override(name, value, group=None if section in ("", "DEFAULT") else section)
        except (cfg.NoSuchOptError, cfg.NoSuchGroupError):
            continue
        except ValueError as error:
            raise BadConfig(f"[{section}] {name}: {error}") from None
        del conf.pending[key]


def reread(conf: Conf) -> None:
    """Read the files again, e.g. at SIGHUP; a file that does not fit any more is refused and changes nothing."""
    try:
        conf.reload_config_files()
    except cfg.Error as error:
        raise BadConfig(str(error)) from None


def opts_of(cls: type) -> list[Any]:
    """The oslo.config options of a group (what ``oslo-config-generator`` wants)."""
    hints = typing.get_type_hints(cls)
    return [_opt(field, hints[field.name], GROUPS[cls]) for field in dataclasses.fields(cast(Any, cls))]


def _name(field: dataclasses.Field[Any]) -> str:
    how: _Declared = field.metadata["option"]
    return how.name or field.name


def _default(field: dataclasses.Field[Any]) -> Any:
    assert field.default_factory is not dataclasses.MISSING
    return field.default_factory()


def _opt(field: dataclasses.Field[Any], hint: Any, section: str) -> Any:
    how: _Declared = field.metadata["option"]
    common = {
        "default": _default(field),
        "help": how.help,
        "secret": how.secret or how.url,
        "sample_default": how.shown_default,
        "deprecated_opts": [_deprecated(old, section) for old in how.deprecated],
    }
    if how.multi:
        return cfg.MultiOpt(_name(field), item_type=oslo_types.String(), **common)
    return cfg.Opt(_name(field), type=_type(hint, how), **common)


def _deprecated(old: str, section: str) -> Any:
    group_name, _, name = old.rpartition(".")
    return cfg.DeprecatedOpt(name, group=group_name or section)


def _type(hint: Any, how: _Declared) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        inner = [a for a in get_args(hint) if a is not type(None)]
        if len(inner) == 1:
            return _type(inner[0], how)
    if get_origin(hint) is list:
        return oslo_types.List(item_type=_type(get_args(hint)[0], how))
    if get_origin(hint) is dict:
        return oslo_types.Dict()
    makers: dict[Any, Callable[[], Any]] = {
        bool: oslo_types.Boolean,
        int: lambda: oslo_types.Integer(min=_whole(how.min), max=_whole(how.max)),
        float: lambda: oslo_types.Float(min=how.min, max=how.max),
        str: lambda: oslo_types.String(choices=how.choices, regex=_URL if how.url else None),
    }
    if hint not in makers:
        raise TypeError(f"an option cannot be of type {hint}")
    return makers[hint]()


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def unknown(files: Iterable[str | Path], groups: Iterable[type] | None = None) -> list[str]:
    """What stands in ``files`` under a section of ``groups`` and is no option there: one sentence each."""
    known = _known(GROUPS if groups is None else groups)
    complaints = []
    for path in files:
        parser = configparser.RawConfigParser(
            strict=False, allow_no_value=True, default_section=" ", interpolation=None, delimiters=("=", ":")
        )
        parser.optionxform = str  # type: ignore[method-assign, assignment]  # as its documentation says
        try:
            parser.read(path, encoding="utf-8")
        except configparser.Error:
            continue  # oslo.config reads more than the standard library does, and has already judged the file
        for section in parser.sections():
            if section not in known or section.startswith(FOREIGN):
                continue
            for name in parser.options(section):
                if name.replace("-", "_") not in known[section]:
                    near = difflib.get_close_matches(name, known[section], n=1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    complaints.append(f"{path}: [{section}] {name} is not an option that is known here{hint}")
    return complaints


def _known(groups: Iterable[type]) -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    for cls in groups:
        section = GROUPS[cls]
        for field in dataclasses.fields(cast(Any, cls)):
            names = known.setdefault(section, set())
            names.add(_name(field))
            for old in field.metadata["option"].deprecated:
                other, _, name = old.rpartition(".")
                known.setdefault(other or section, set()).add(name)
    return known


def sample(groups: Iterable[type] | None = None) -> str:
    """A commented sample of a configuration file, in sections by name."""
    by_section: dict[str, list[type]] = {}
    for cls in GROUPS if groups is None else groups:
        by_section.setdefault(GROUPS[cls], []).append(cls)
    lines: list[str] = []
    for section in sorted(by_section, key=lambda s: (s != "DEFAULT", s)):
        lines += [f"[{section}]", ""]
        for cls in by_section[section]:
            for field in dataclasses.fields(cast(Any, cls)):
                lines += [*_sample_of(field), ""]
    return "\n".join(lines)


def _sample_of(field: dataclasses.Field[Any]) -> list[str]:
    how: _Declared = field.metadata["option"]
    lines = [f"# {line}" for line in textwrap.wrap(" ".join(how.help.split()), 100)]
    if how.choices:
        lines.append(f"# One of: {', '.join(how.choices)}")
    bounds = [f"at least {how.min}"] * (how.min is not None) + [f"at most {how.max}"] * (how.max is not None)
    if bounds:
        lines.append(f"# {', '.join(bounds).capitalize()}")
    default = how.shown_default if how.shown_default is not None else _default(field)
    if isinstance(default, list | tuple):
        default = ",".join(map(str, default))
    elif isinstance(default, dict):
        default = ",".join(f"{key}:{value}" for key, value in default.items())
    elif isinstance(default, bool):
        default = str(default).lower()
    return [*lines, f"#{_name(field)} = {'' if default is None else default}"]
