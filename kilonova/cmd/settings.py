"""The configuration of the one-command mode: what an operator would have written by hand."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from kilonova.embedded.neighbours import ServiceCredentials
from kilonova.embedded.ports import Ports
from kilonova.store.cell_mappings import CELL0_UUID, CellMapping


def default_state() -> Path:
    """Where the cloud lives when nobody says: for root where services keep their state, else in the user's own."""
    if os.geteuid() == 0:
        return Path("/var/lib/kilonova")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kilonova"


SERVICE_TYPES = {"placement": "placement", "neutron": "network", "cinder": "volumev3", "glance": "image"}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the cloud of a state directory keeps its own things."""

    state: Path
    ports: Ports

    @property
    def conf(self) -> Path:
        """The nova.conf."""
        return self.state / "etc" / "nova.conf"

    @property
    def local_conf(self) -> Path:
        """Options of the operator's own, which stand over those of the nova.conf; need not be there."""
        return self.state / "etc" / "local.conf"

    @property
    def clouds(self) -> Path:
        """The clouds.yaml for clients."""
        return self.state / "clouds.yaml"

    @property
    def pid_file(self) -> Path:
        """Whose process runs the cloud."""
        return self.state / "run" / "kilonova.pid"

    @property
    def compute(self) -> Path:
        """The state_path of our host."""
        return self.state / "compute"

    @property
    def log(self) -> Path:
        """The log of our own services."""
        return self.state / "logs" / "kilonova.log"

    @property
    def metadata_socket(self) -> Path:
        """Where the metadata service listens for the network plane."""
        return self.state / "run" / "metadata.sock"

    def database(self, name: str) -> str:
        """The URL of a database file."""
        return f"sqlite:///{self.state / 'db' / name}.db"

    def cells(self, count: int) -> list[CellMapping]:
        """cell0 and ``count`` cells."""
        cell0 = CellMapping(
            uuid=CELL0_UUID, name="cell0", transport_url="none:///", database_url=self.database("nova_cell0")
        )
        return [cell0, *(self._cell(number) for number in range(1, count + 1))]

    def _cell(self, number: int) -> CellMapping:
        return CellMapping(
            uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, f"kilonova:cell{number}")),
            name=f"cell{number}",
            transport_url=f"local:///cell{number}",
            database_url=self.database(f"nova_cell{number}"),
        )


def sections(
    layout: Layout, credentials: ServiceCredentials, *, host: str, driver: str
) -> Mapping[str, Mapping[str, object]]:
    """The sections of nova.conf."""
    login = {
        "auth_type": "password",
        "auth_url": credentials.auth_url,
        "username": credentials.username,
        "password": credentials.password,
        "project_name": credentials.project_name,
        "user_domain_name": credentials.user_domain_name,
        "project_domain_name": credentials.project_domain_name,
        "region_name": credentials.region_name,
    }
    neighbours = {
        section: {**login, "endpoint_override": credentials.endpoints[service]}
        for section, service in SERVICE_TYPES.items()
        if section != "cinder"
    }
    return {
        "DEFAULT": {
            "host": host,
            "state_path": layout.compute,
            "transport_url": "local://",
            "compute_driver": driver,
            # Guests on QEMU's own network reach no metadata service.
            "force_config_drive": driver == "libvirt" and os.geteuid() != 0,
            "osapi_compute_listen": "127.0.0.1",
            "osapi_compute_listen_port": layout.ports.nova,
            "metadata_listen": "127.0.0.1",
            "metadata_listen_port": layout.ports.metadata,
        },
        "api_database": {"connection": layout.database("nova_api")},
        "database": {"connection": layout.database("nova_cell1")},
        "keystone_authtoken": {
            **login,
            "www_authenticate_uri": credentials.auth_url,
            "service_token_roles": "service",
            "service_token_roles_required": True,
            "include_service_catalog": False,
        },
        "service_user": {**login, "send_service_user_token": True},
        "keystone": login,
        **neighbours,
        "cinder": login,
    }


def write_private(path: Path, text: str) -> None:
    """A file for its owner alone: it holds passwords."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)


def as_ini(found: Mapping[str, Mapping[str, object]]) -> str:
    """As a nova.conf."""
    parts = []
    for section, values in found.items():
        lines = [f"{name} = {value}" for name, value in values.items()]
        parts.append(f"[{section}]\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)
