"""A user of a site, by openstacksdk."""

from __future__ import annotations

import functools
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from tests.site.site import wait_for


class User:
    """Boots servers and waits for what becomes of them. ``admin`` sees where they are."""

    def __init__(self, connection: Connection, admin: Connection) -> None:
        self.connection, self.admin = connection, admin

    @functools.cached_property
    def common(self) -> dict[str, Any]:
        connection: Any = self.connection
        return {
            "image_id": connection.image.find_image("placeholder").id,
            "flavor_id": connection.compute.find_flavor("m1.nano").id,
            "networks": [{"uuid": connection.network.find_network("private").id}],
        }

    def create(self, name: str, **more: Any) -> str:
        """Ask for a server; its id."""
        return str(self.connection.compute.create_server(name=name, **{**self.common, **more}).id)

    def show(self, server: str) -> Any:
        """The server as openstacksdk has it."""
        return self.connection.compute.get_server(server)

    def settled(self, server: str, seconds: float = 60.0) -> Any:
        """The server when nothing is under way on it any more."""

        def look() -> Any:
            found = self.show(server)
            return found if found.task_state is None and found.status in ("ACTIVE", "SHUTOFF", "ERROR") else None

        return wait_for(look, what=f"server {server} is settled", seconds=seconds)

    def active(self, server: str, seconds: float = 60.0) -> Any:
        """The server, which must become ACTIVE."""
        found = self.settled(server, seconds)
        assert found.status == "ACTIVE", found.fault
        return found

    def boot(self, name: str, **more: Any) -> Any:
        """A server that is ACTIVE."""
        return self.active(self.create(name, **more))

    def boot_on(self, host: str) -> str:
        """A server that is ACTIVE on that host, by an administrator; its id."""
        server = self.create(f"on-{host}", networks="none", host=host)
        assert self.active(server).compute_host == host
        return server

    def building(self, server: str, seconds: float = 30.0) -> str:
        """The host that makes the guest, once it does."""

        def look() -> str | None:
            found = self.admin.compute.get_server(server)
            return found.compute_host if found.task_state == "spawning" else None

        return str(wait_for(look, what=f"server {server} is spawning", seconds=seconds))

    def delete(self, *servers: str, seconds: float = 60.0) -> None:
        """Delete them and wait until they are gone."""
        for server in servers:
            self.connection.compute.delete_server(server, ignore_missing=True)
        for server in servers:
            wait_for(functools.partial(self.is_gone, server), what=f"server {server} is gone", seconds=seconds)

    def is_gone(self, server: str) -> bool:
        """Whether it is not found."""
        try:
            self.show(server)
        except NotFoundException:
            return True
        return False
