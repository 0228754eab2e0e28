"""The options of the HTTP edge, with the names and defaults that operators know."""

from __future__ import annotations

import dataclasses

from kilonova.base.config import Conf, group, option, read
from kilonova.clients.options import CinderOptions
from kilonova.core.options import GuestOptions, HeartbeatOptions


@group("DEFAULT")
class EdgeOptions(HeartbeatOptions, GuestOptions):
    """What concerns the edge in [DEFAULT]."""

    default_schedule_zone: str | None = option(
        None, help="The availability zone of servers whose request names none; unset leaves them free."
    )
    instance_name_template: str = option("instance-%08x", help="The hypervisor's name of a server, made of its number.")
    password_length: int = option(12, min=0, help="Length of generated administrator passwords.")
    reclaim_instance_interval: int = option(
        0, help="Seconds that a deleted server may still be restored; 0 deletes at once."
    )
    allow_resize_to_same_host: bool = option(False, help="Whether a resize may end on the host where it began.")
    max_local_block_devices: int = option(
        3, help="How many local disks a server may have; -1 is no limit, 0 forbids them."
    )
    osapi_compute_listen: str = option("0.0.0.0", help="The address on which nova-api listens.")  # noqa: S104 - an API is public
    osapi_compute_listen_port: int = option(8774, min=1, max=65535, help="The port on which nova-api listens.")


@group("api")
class ApiOptions:
    """The section [api]."""

    max_limit: int = option(1000, min=0, help="The most items that one page of a list may have.")
    compute_link_prefix: str | None = option(
        None, help="What stands before paths in links to this API, instead of the request's host."
    )
    glance_link_prefix: str | None = option(
        None, help="What stands before paths in links to images, instead of the image service's address."
    )
    enable_instance_password: bool = option(
        True, help="Whether the answer to a server create holds the administrator's password."
    )
    list_records_by_skipping_down_cells: bool = option(
        True, help="Whether lists leave out cells that do not answer; else they fail."
    )
    instance_list_per_project_cells: bool = option(
        False, help="Whether lists ask only the cells in which the project has servers."
    )
    use_neutron_default_nets: bool = option(False, help="Whether a server of a project without networks gets one.")
    neutron_default_project_id: str = option("default", help="The project whose networks are those defaults.")


@group("quota")
class QuotaOptions:
    """The section [quota]: limits of projects that have no limits of their own; -1 is no limit."""

    instances: int = option(10, min=-1, help="Servers of a project.")
    cores: int = option(20, min=-1, help="Virtual processors of a project's servers.")
    ram: int = option(51200, min=-1, help="MiB of memory of a project's servers.")
    metadata_items: int = option(128, min=-1, help="Metadata items of a server.")
    injected_files: int = option(5, min=-1, help="Files given to a server at its creation.")
    injected_file_content_bytes: int = option(10240, min=-1, help="Bytes in such a file.")
    injected_file_path_length: int = option(255, min=-1, help="Characters in the path of such a file.")
    key_pairs: int = option(100, min=-1, help="Key pairs of a user.")
    server_groups: int = option(10, min=-1, help="Server groups of a project.")
    server_group_members: int = option(10, min=-1, help="Servers in a server group.")
    recheck_quota: bool = option(
        True, help="Whether use is counted again after a server's record is made, to close the race of two creates."
    )


@group("oslo_middleware")
class BodyOptions:
    """The section [oslo_middleware]."""

    max_request_body_size: int = option(114688, min=1, help="Bytes that a request's body may have.")
    enable_proxy_headers_parsing: bool = option(
        False, help="Whether X-Forwarded-Proto and X-Forwarded-Host are believed."
    )


@dataclasses.dataclass(frozen=True)
class Options:
    """All groups of the edge, as handlers get them."""

    default: EdgeOptions = dataclasses.field(default_factory=EdgeOptions)
    api: ApiOptions = dataclasses.field(default_factory=ApiOptions)
    quota: QuotaOptions = dataclasses.field(default_factory=QuotaOptions)
    volume: CinderOptions = dataclasses.field(default_factory=CinderOptions)
    body: BodyOptions = dataclasses.field(default_factory=BodyOptions)
    support: str = "Please contact the administrator"


def read_options(conf: Conf) -> Options:
    """The groups as the configuration has them; BadConfig."""
    return Options(
        default=read(EdgeOptions, conf),
        api=read(ApiOptions, conf),
        quota=read(QuotaOptions, conf),
        volume=read(CinderOptions, conf),
        body=read(BodyOptions, conf),
    )
