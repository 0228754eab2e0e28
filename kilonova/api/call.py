"""What a handler gets: one request, decoded and identified, and the services it may use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kilonova.api.options import Options
from kilonova.base.context import Context
from kilonova.base.errors import PolicyRefused
from kilonova.base.operation import Operation
from kilonova.base.versions import Version

if TYPE_CHECKING:
    from kilonova.clients.cinder import Cinder
    from kilonova.clients.glance import Glance
    from kilonova.clients.keystone import Keystone
    from kilonova.clients.neutron import Neutron
    from kilonova.clients.placement import Placement
    from kilonova.contracts.compute import Compute
    from kilonova.contracts.conductor import Conductor
    from kilonova.store.cells import Cells

B = TypeVar("B")


class Policy(Protocol):
    """Decides who may do what."""

    def allows(self, rule: str, context: Context, target: Mapping[str, Any]) -> bool:
        """Whether ``rule`` lets the caller act on ``target`` ({"project_id": …, "user_id": …})."""
        ...


@dataclasses.dataclass(frozen=True)
class Services:
    """What handlers may use. ``conductor("")`` is the super conductor, else a cell's; ``compute(cell, host)``."""

    cells: Cells
    placement: Placement
    neutron: Neutron
    cinder: Cinder
    glance: Glance
    keystone: Keystone
    policy: Policy
    conductor: Callable[[str], Conductor]
    compute: Callable[[str, str], Compute]
    options: Options


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer with a code or headers of its own; handlers that need neither return the body."""

    body: Any = None
    status: int | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Call(Generic[B]):
    """One request.

    ``params`` are the path's; ``token`` the user's own, never stored; ``base`` the link base (scheme and host, no
    path), ``path`` the request's own, ``project_in_url`` whether links carry the project, ``root`` the
    endpoint's ("v2.1", or "v2" for the legacy one).
    """

    operation: Operation
    context: Context
    version: Version
    params: Mapping[str, str]
    body: B
    query: Any
    raw_query: Mapping[str, list[str]]
    services: Services
    token: str = ""
    base: str = ""
    path: str = ""
    project_in_url: bool = False
    root: str = "v2.1"
    authorized: bool = False

    @property
    def options(self) -> Options:
        """The API's options."""
        return self.services.options

    def authorize(self, target: Mapping[str, Any] | None = None, *, rule: str | None = None) -> None:
        """PolicyRefused unless the operation's rule (or ``rule``) allows; default target: the caller's project."""
        self.authorized = True
        name = rule or self.operation.rule
        if not self.allows(name, target):
            raise PolicyRefused(rule=name)

    def allows(self, rule: str, target: Mapping[str, Any] | None = None) -> bool:
        """Whether the policy ``rule`` lets the caller; never raises."""
        own = {"project_id": self.context.project_id, "user_id": self.context.user_id}
        return self.services.policy.allows(rule, self.context, target if target is not None else own)

    def since(self, version: str) -> bool:
        """Whether the request's microversion is ``version`` or newer."""
        return self.version >= Version.parse(version)

    @property
    def link_base(self) -> str:
        """What self links begin with: base, endpoint, and the project where the request's URL has it."""
        return f"{self.base}/{self.root}{self._project}"

    @property
    def _project(self) -> str:
        return f"/{self.context.project_id}" if self.project_in_url else ""

    def bookmark(self, collection: str, thing: str) -> dict[str, str]:
        """The link of an entity that names no version."""
        return {"rel": "bookmark", "href": f"{self.base}{self._project}/{collection}/{thing}"}

    def links(self, collection: str, thing: str) -> list[dict[str, str]]:
        """The self and bookmark links of an entity."""
        return [
            {"rel": "self", "href": f"{self.link_base}/{collection}/{thing}"},
            self.bookmark(collection, thing),
        ]
