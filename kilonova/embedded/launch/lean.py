"""Keep out of a neighbour's process what it loads and a cloud on one machine never uses: a fifth of its memory.

Three ways, each for one reason. ABSENT: the neighbour asks whether the library is there and does without. BARE: it
wants one small module of a package, whose own start would load the rest. HOLLOW: it imports names that are used only
by a feature that is off here (SAML federation, limits kept in Keystone, VMware, agents); touching one is an error then.
The releases are frozen, so what these lists say stays true until the freeze is changed. $KILONOVA_FULL=1 turns it off.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_EVERYWHERE = ("charset_normalizer", "pygments")
ABSENT = {
    "keystone": (*_EVERYWHERE, "eventlet"),
    "glance": (*_EVERYWHERE, "eventlet", "os_brick", "boto3", "swiftclient"),
    "placement": (*_EVERYWHERE, "eventlet"),
    "neutron": _EVERYWHERE,
    "cinder": _EVERYWHERE,
}
BARE = {"neutron": ("os_ken", "os_ken.lib", "os_ken.lib.packet")}
HOLLOW = {
    "keystone": ("saml2",),
    "glance": ("openstack", "oslo_vmware"),
    "neutron": ("openstack", "pyroute2"),
    "cinder": ("oslo_vmware",),
}


class _HollowType(type):
    """A hollow name has hollow names within, as a module has that was taken for a class."""

    def __getattr__(cls, name: str) -> "_HollowType":
        if name.startswith("__"):
            raise AttributeError(name)
        return _HollowType(name, (_Hollow,), {})


class _Hollow(Exception, metaclass=_HollowType):
    """The base of every name in a hollow module: a class, so that it may be inherited, caught and annotated with."""

    def __init__(self, *_: object) -> None:
        super().__init__("this feature is not part of the one-command mode")
        raise self


class _HollowLoader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []
        module.__dict__["__getattr__"] = lambda name: getattr(_Hollow, name)


class _BareLoader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the package's own start is what is kept out."""


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str) -> None:
        self.absent = frozenset(ABSENT.get(name, ()))
        self.bare = frozenset(BARE.get(name, ()))
        self.hollow = frozenset(HOLLOW.get(name, ()))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top in self.absent:
            raise ModuleNotFoundError(f"{fullname} is kept out", name=fullname)
        if top in self.hollow:
            return importlib.machinery.ModuleSpec(fullname, _HollowLoader(), is_package=True)
        if fullname in self.bare:
            real = importlib.machinery.PathFinder.find_spec(fullname, path, target)
            if real is not None:
                spec = importlib.machinery.ModuleSpec(fullname, _BareLoader(), is_package=True)
                spec.submodule_search_locations = real.submodule_search_locations
                return spec
        return None


def keep_out(name: str) -> None:
    """Before a neighbour is loaded: keep out what its lists say, and choose threads where it leaves the choice."""
    if os.environ.get("KILONOVA_FULL"):
        return
    os.environ["EVENTLET_NO_GREENDNS"] = "yes"
    sys.meta_path.insert(0, _Finder(name))
    if "eventlet" in ABSENT[name] and name != "placement":
        backend: Any = importlib.import_module("oslo_service.backend")
        backend.init_backend(backend.BackendType.THREADING)
