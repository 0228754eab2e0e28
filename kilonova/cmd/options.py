"""Options of the programs themselves: who this process is, where its databases and its broker are."""

from __future__ import annotations

import socket

from kilonova.base.config import group, option


@group("DEFAULT")
class ProcessOptions:
    """[DEFAULT], as far as every program needs it."""

    host: str = option(socket.gethostname(), help="The name under which this host is known.")
    state_path: str = option("/var/lib/nova", help="Where services keep what must outlive them.")
    transport_url: str | None = option(
        None, url=True, help="The broker, e.g. rabbit://user:password@host:5672/. local:// is the bus of one process."
    )
    debug: bool = option(False, help="Log debugging messages.")
    use_json: bool = option(False, help="Log JSON.")
    log_file: str | None = option(None, help="Log there instead of standard error.")
    compute_driver: str = option("libvirt", help="The hypervisor driver: libvirt or fake.")
    cell: str | None = option(None, help="What a nova-conductor serves: a cell by name or uuid, or super; unset: all.")
    metadata_listen: str = option("127.0.0.1", help="The address on which nova-metadata-api listens.")
    metadata_listen_port: int = option(8775, min=1, max=65535, help="The port on which nova-metadata-api listens.")


@group("api_database")
class ApiDatabaseOptions:
    """The API database."""

    connection: str | None = option(None, url=True, help="Its URL: sqlite, mysql+pymysql or postgresql+psycopg.")
    max_pool_size: int = option(20, min=1, help="Connections kept open at most.")


@group("database")
class DatabaseOptions:
    """The cell's database (for programs of a cell), or cell0's."""

    connection: str | None = option(None, url=True, help="Its URL.")
    max_pool_size: int = option(20, min=1, help="Connections kept open at most.")


@group("conductor")
class ConductorOptions:
    """The conductor."""

    workers: int = option(24, min=1, help="Runs driven at the same time.")
    purge_deleted_days: int = option(
        30, min=0, help="Days for which deleted servers are kept, to be shown to those who ask for them; 0 is for ever."
    )


@group("upgrade_levels")
class UpgradeOptions:
    """What is asked of older peers during an upgrade."""

    compute: str = option(
        "auto",
        help="The version of the contract by which hosts are asked; auto is what the oldest host of a cell knows.",
    )
