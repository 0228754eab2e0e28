"""The server: the record that all else is about."""

from __future__ import annotations

import datetime

import msgspec

from kilonova.base.errors import ErrorRecord
from kilonova.core.flavor import Flavor
from kilonova.core.network import Nic


class Server(msgspec.Struct, kw_only=True):
    """A server, as its cell's database holds it (or, before it has a cell, its build request).

    ``id`` numbers it within its cell (0: none yet). ``name`` is for display, ``hostname`` for the guest. Times are UTC.
    ``image_properties`` are those of its image at create. ``user_data`` is base64 text.
    """

    uuid: str
    project_id: str
    user_id: str
    name: str
    flavor: Flavor
    created_at: datetime.datetime
    id: int = 0
    hostname: str = ""
    description: str | None = None
    image_id: str | None = None
    image_properties: dict[str, str] = {}
    kernel_id: str | None = None
    ramdisk_id: str | None = None
    vm_state: str = "building"
    task_state: str | None = "scheduling"
    power_state: int = 0
    host: str | None = None
    node: str | None = None
    node_uuid: str | None = None
    launched_on: str | None = None
    availability_zone: str | None = None
    requested_zone: str | None = None
    launch_index: int = 0
    reservation_id: str = ""
    key_name: str | None = None
    key_data: str | None = None
    key_type: str = "ssh"
    user_data: str | None = None
    config_drive: bool = False
    root_device_name: str | None = None
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    auto_disk_config: bool = False
    progress: int = 0
    locked: bool = False
    locked_by: str | None = None
    locked_reason: str | None = None
    metadata: dict[str, str] = {}
    tags: list[str] = []
    nics: list[Nic] = []
    security_groups: list[str] = []
    trusted_certs: list[str] | None = None
    system_metadata: dict[str, str] = {}
    updated_at: datetime.datetime | None = None
    launched_at: datetime.datetime | None = None
    terminated_at: datetime.datetime | None = None
    deleted_at: datetime.datetime | None = None
    deleted: bool = False
    hidden: bool = False
    volume_backed: bool = False

    @property
    def instance_name(self) -> str:
        """The hypervisor's name for it."""
        return f"instance-{self.id:08x}"


class ServerFault(msgspec.Struct, kw_only=True):
    """The last failure of a server, as users see it. ``details`` is for administrators."""

    server: str
    code: int
    message: str
    created_at: datetime.datetime
    details: str = ""
    host: str = ""


class Guest(msgspec.Struct, kw_only=True):
    """What a host needs to know of a server. Secrets: ``admin_password``, ``files``, ``server.user_data``."""

    server: Server
    admin_password: str | None = None
    files: list[tuple[str, str]] = []


def fault_of_record(server: str, record: ErrorRecord, *, at: datetime.datetime, host: str = "") -> ServerFault:
    """The fault to show for an error: a foreign exception shows its class name only, its text is for admins."""
    message = record.message if record.safe else record.kind
    details = "" if record.safe and record.code != 500 else (record.details or record.message)
    return ServerFault(
        server=server, code=record.code, message=message[:255], created_at=at, details=details, host=host
    )
