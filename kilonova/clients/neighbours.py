"""All neighbours together, made from the options."""

from __future__ import annotations

from typing import NamedTuple

from kilonova.base.config import Conf, read
from kilonova.clients.cinder import Cinder
from kilonova.clients.cinder_rest import RestCinder
from kilonova.clients.glance import Glance
from kilonova.clients.glance_rest import RestGlance
from kilonova.clients.keystone import Keystone
from kilonova.clients.keystone_rest import RestKeystone
from kilonova.clients.neutron import Neutron
from kilonova.clients.neutron_rest import RestNeutron
from kilonova.clients.options import (
    CinderOptions,
    GlanceOptions,
    KeystoneOptions,
    NeighbourOptions,
    NeutronOptions,
    PlacementOptions,
    ServiceUserOptions,
)
from kilonova.clients.placement import Placement
from kilonova.clients.placement_rest import RestPlacement
from kilonova.clients.session import Login, Neighbour


class Options(NamedTuple):
    """The sections of all neighbours."""

    service_user: ServiceUserOptions
    placement: PlacementOptions
    neutron: NeutronOptions
    cinder: CinderOptions
    glance: GlanceOptions
    keystone: KeystoneOptions


class Neighbours(NamedTuple):
    """One client for each; all may be used from any thread."""

    placement: Placement
    neutron: Neutron
    cinder: Cinder
    glance: Glance
    keystone: Keystone


def read_options(conf: Conf) -> Options:
    """From a loaded nova.conf."""
    return Options(
        service_user=read(ServiceUserOptions, conf),
        placement=read(PlacementOptions, conf),
        neutron=read(NeutronOptions, conf),
        cinder=read(CinderOptions, conf),
        glance=read(GlanceOptions, conf),
        keystone=read(KeystoneOptions, conf),
    )


def connect(options: Options, *, connections: int = 32) -> Neighbours:
    """Clients over HTTP. Nothing is sent yet. ``connections``: threads that may ask one neighbour at once."""
    logins: dict[tuple[object, ...], Login] = {}

    def login(section: NeighbourOptions) -> Login:
        who = options.service_user if section.auth_url is None else section
        key = (who.auth_url, who.username, who.user_id, who.project_name, section.cafile, section.insecure)
        if key not in logins:
            logins[key] = Login(section, service=options.service_user, connections=connections)
        return logins[key]

    has_service = options.service_user.auth_url is not None and options.service_user.send_service_user_token
    service = login(options.service_user) if has_service else None

    def http(name: str, section: NeighbourOptions, service_type: str, override: str | None = None) -> Neighbour:
        vouch = name == "cinder"
        beside = service or (login(section) if vouch else None)
        return Neighbour(
            name,
            section,
            login=login(section),
            service_type=service_type,
            service=beside,
            override=override,
            vouch=vouch,
        )

    cinder_type = options.cinder.catalog_info.split(":")[0] or "volumev3"
    keystone_url = options.keystone.auth_url or options.service_user.auth_url
    return Neighbours(
        RestPlacement(http("placement", options.placement, "placement")),
        RestNeutron(
            http("neutron", options.neutron, "network"),
            facts_seconds=options.neutron.facts_seconds,
            extension_seconds=options.neutron.extension_sync_interval,
        ),
        RestCinder(http("cinder", options.cinder, cinder_type, options.cinder.endpoint_template)),
        RestGlance(http("glance", options.glance, "image", next(iter(options.glance.api_servers), None))),
        RestKeystone(http("keystone", options.keystone, "identity", keystone_url)),
    )
