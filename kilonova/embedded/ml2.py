"""Neutron's mechanism driver for our hosts; it runs inside Neutron, not in our processes.

Every port is bound at once, on whatever host is asked for: on one machine there is nothing to wait for. What changes
is told to the local network plane: one datagram of JSON, `{"resource", "event", "id"}`, to a Unix socket, sent without
waiting and lost without harm, as the plane also looks by itself.
"""

import json
import socket
from typing import Any

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events, registry, resources
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api
from oslo_config import cfg
from oslo_log import log

LOG = log.getLogger(__name__)
OPTIONS = [cfg.StrOpt("plane_socket", help="The datagram socket of the local network plane.")]
WATCHED = (
    resources.SECURITY_GROUP,
    resources.SECURITY_GROUP_RULE,
    resources.ROUTER,
    resources.ROUTER_INTERFACE,
    resources.FLOATING_IP,
    resources.ROUTER_GATEWAY,
)
CHANGES = (events.AFTER_CREATE, events.AFTER_UPDATE, events.AFTER_DELETE)


class KilonovaMechanismDriver(api.MechanismDriver):  # type: ignore[misc]  # Neutron is not there for mypy
    """Binds ports of any host: ordinary ones to the network's bridge, passed-through ones to their device."""

    def initialize(self) -> None:
        """Open the socket, listen to what is not a network, a subnet or a port."""
        cfg.CONF.register_opts(OPTIONS, "ml2_kilonova")
        self.address = cfg.CONF.ml2_kilonova.plane_socket
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        registry.subscribe(self._spare_agents, resources.PROCESS, events.AFTER_INIT)
        for resource in WATCHED:
            for change in CHANGES:
                registry.subscribe(self._heard, resource, change)

    @property
    def connectivity(self) -> str:
        """Ports are on one layer 2 network."""
        return str(portbindings.CONNECTIVITY_L2)

    def bind_port(self, context: Any) -> None:
        """Bind to the first segment; other kinds of port than normal, direct and macvtap are left unbound."""
        port = context.current
        kind = port[portbindings.VNIC_TYPE]
        details: dict[str, Any] = {portbindings.VIF_DETAILS_CONNECTIVITY: portbindings.CONNECTIVITY_L2}
        if kind == portbindings.VNIC_NORMAL:
            vif_type = portbindings.VIF_TYPE_BRIDGE
            details |= {portbindings.CAP_PORT_FILTER: True, "bridge_name": "brq" + port["network_id"][:11]}
        elif kind in (portbindings.VNIC_DIRECT, portbindings.VNIC_MACVTAP):
            vif_type = portbindings.VIF_TYPE_HW_VEB
            details |= {portbindings.CAP_PORT_FILTER: False}
        else:
            return
        for segment in context.segments_to_bind:
            context.set_binding(segment[api.ID], vif_type, details, status=constants.PORT_STATUS_ACTIVE)
            return

    def create_port_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("port", "create", context.current["id"])

    def update_port_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("port", "update", context.current["id"])

    def delete_port_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("port", "delete", context.current["id"])

    def create_network_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("network", "create", context.current["id"])

    def update_network_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("network", "update", context.current["id"])

    def delete_network_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("network", "delete", context.current["id"])

    def create_subnet_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("subnet", "create", context.current["id"])

    def update_subnet_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("subnet", "update", context.current["id"])

    def delete_subnet_postcommit(self, context: Any) -> None:
        """Tell the plane."""
        self._poke("subnet", "delete", context.current["id"])

    def _spare_agents(self, _resource: str, _event: str, _trigger: Any, payload: Any = None) -> None:
        """No agent listens here: do not compose a message to agents at each change, a sixth of a port's creation."""
        notifier = getattr(directory.get_plugin(), "_ovo_notifier", None)
        for handler in getattr(notifier, "_resource_handlers", {}).values():
            registry.unsubscribe_all(handler.handle_event)

    def _heard(self, resource: str, event: str, _trigger: Any, payload: Any = None) -> None:
        self._poke(resource, event.removeprefix("after_"), getattr(payload, "resource_id", None))

    def _poke(self, resource: str, event: str, key: str | None) -> None:
        if not self.address:
            return
        try:
            self.socket.sendto(json.dumps({"resource": resource, "event": event, "id": key}).encode(), self.address)
        except OSError as error:
            LOG.debug("the network plane was not told of a %s: %s", resource, error)
