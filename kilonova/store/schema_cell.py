"""The tables of a cell's database: servers, their devices and journal, services and nodes.

``deleted`` is 0 for the living and the row's id for the deleted, so that it can stand in unique keys; lists' indexes
begin with it, so that the deleted cost the living nothing.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, MetaData, UniqueConstraint

from kilonova.core.device import BlockDevice
from kilonova.core.flavor import Flavor
from kilonova.core.host import Node
from kilonova.core.network import Nic
from kilonova.store import schema_flow
from kilonova.store.types import Json, Time, long_text, number, table, text

HEAD = "cell0001"

metadata = MetaData()

# The columns are named as the attributes of ``core.server.Server``; the addresses are lines, for filters by address.
instances = table(
    "instances",
    metadata,
    number(),
    Column("uuid", text(36), nullable=False, unique=True),
    Column("project_id", text(), nullable=False),
    Column("user_id", text(), nullable=False),
    Column("name", text(), nullable=False),
    Column("hostname", text(), nullable=False),
    Column("description", text()),
    Column("flavorid", text(), nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("flavor", Json(Flavor), nullable=False),
    Column("image_id", text(36)),
    Column("image_properties", Json(dict[str, str]), nullable=False),
    Column("kernel_id", text()),
    Column("ramdisk_id", text()),
    Column("vm_state", text(), nullable=False),
    Column("task_state", text()),
    Column("power_state", Integer, nullable=False),
    Column("host", text()),
    Column("node", text()),
    Column("node_uuid", text(36)),
    Column("launched_on", text()),
    Column("availability_zone", text()),
    Column("requested_zone", text()),
    Column("launch_index", Integer, nullable=False),
    Column("reservation_id", text(), nullable=False),
    Column("key_name", text()),
    Column("key_data", long_text()),
    Column("key_type", text(16), nullable=False),
    Column("user_data", long_text()),
    Column("config_drive", Boolean, nullable=False),
    Column("root_device_name", text()),
    Column("access_ip_v4", text(39)),
    Column("access_ip_v6", text(39)),
    Column("auto_disk_config", Boolean, nullable=False),
    Column("progress", Integer, nullable=False),
    Column("locked", Boolean, nullable=False),
    Column("locked_by", text(16)),
    Column("locked_reason", text()),
    Column("nics", Json(list[Nic]), nullable=False),
    Column("addresses_v4", long_text(), nullable=False),
    Column("addresses_v6", long_text(), nullable=False),
    Column("security_groups", Json(list[str]), nullable=False),
    Column("trusted_certs", Json(list[str])),
    Column("system_metadata", Json(dict[str, str]), nullable=False),
    Column("hidden", Boolean, nullable=False),
    Column("volume_backed", Boolean, nullable=False),
    Column("created_at", Time, nullable=False),
    Column("updated_at", Time),
    Column("launched_at", Time),
    Column("terminated_at", Time),
    Column("deleted_at", Time),
    Column("deleted", Integer, nullable=False, default=0),
    Index("instances_deleted_project_id_created_at_idx", "deleted", "project_id", "created_at", "uuid"),
    Index("instances_deleted_created_at_idx", "deleted", "created_at", "uuid"),
    Index("instances_deleted_host_idx", "deleted", "host"),
    Index("instances_project_id_updated_at_idx", "project_id", "updated_at"),
    Index("instances_updated_at_idx", "updated_at"),
    Index("instances_reservation_id_idx", "reservation_id"),
    Index("instances_deleted_at_idx", "deleted_at"),
)

instance_metadata = table(
    "instance_metadata",
    metadata,
    Column("instance_uuid", text(36), ForeignKey(instances.c.uuid, ondelete="CASCADE"), primary_key=True),
    Column("key", text(), primary_key=True),
    Column("value", text(), nullable=False),
)

tags = table(
    "tags",
    metadata,
    Column("resource_id", text(36), ForeignKey(instances.c.uuid, ondelete="CASCADE"), primary_key=True),
    Column("tag", text(80), primary_key=True),
    Index("tags_tag_idx", "tag"),
)

instance_faults = table(
    "instance_faults",
    metadata,
    number(),
    Column("instance_uuid", text(36), ForeignKey(instances.c.uuid, ondelete="CASCADE"), nullable=False),
    Column("code", Integer, nullable=False),
    Column("message", text(), nullable=False),
    Column("details", long_text(), nullable=False),
    Column("host", text(), nullable=False),
    Column("created_at", Time, nullable=False),
    Index("instance_faults_instance_uuid_idx", "instance_uuid", "id"),
)

block_device_mapping = table(
    "block_device_mapping",
    metadata,
    number(),
    Column("uuid", text(36), nullable=False, unique=True),
    Column("instance_uuid", text(36), ForeignKey(instances.c.uuid, ondelete="CASCADE"), nullable=False),
    Column("volume_id", text(36)),
    Column("device", Json(BlockDevice), nullable=False),
    Column("created_at", Time, nullable=False),
    Column("updated_at", Time),
    Index("block_device_mapping_instance_uuid_idx", "instance_uuid"),
    Index("block_device_mapping_volume_id_idx", "volume_id"),
)

services = table(
    "services",
    metadata,
    number(),
    Column("uuid", text(36), nullable=False, unique=True),
    Column("binary", text(), nullable=False),
    Column("host", text(), nullable=False),
    Column("topic", text(), nullable=False),
    Column("version", Integer, nullable=False),
    Column("report_count", Integer, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("disabled_reason", text()),
    Column("forced_down", Boolean, nullable=False),
    Column("availability_zone", text()),
    Column("last_seen_up", Time),
    Column("created_at", Time, nullable=False),
    Column("updated_at", Time),
    Column("deleted_at", Time),
    Column("deleted", Integer, nullable=False, default=0),
    UniqueConstraint("host", "binary", "deleted", name="uniq_services0host0binary0deleted"),
)

compute_nodes = table(
    "compute_nodes",
    metadata,
    number(),
    Column("uuid", text(36), nullable=False, unique=True),
    Column("host", text(), nullable=False),
    Column("hypervisor_hostname", text(), nullable=False),
    Column("mapped", Boolean, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("node", Json(Node), nullable=False),
    Column("created_at", Time, nullable=False),
    Column("updated_at", Time, nullable=False),
    Column("deleted_at", Time),
    Column("deleted", Integer, nullable=False, default=0),
    UniqueConstraint(
        "host", "hypervisor_hostname", "deleted", name="uniq_compute_nodes0host0hypervisor_hostname0deleted"
    ),
    Index("compute_nodes_updated_at_idx", "updated_at"),
)

flows = schema_flow.declare(metadata)
