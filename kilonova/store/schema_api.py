"""The tables of the API database: what all cells share, and what has no cell yet."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, UniqueConstraint

from kilonova.core.request import RequestSpec, Why
from kilonova.store import schema_flow
from kilonova.store.types import Json, Time, long_text, number, table, text

HEAD = "api0001"

metadata = MetaData()

cell_mappings = table(
    "cell_mappings",
    metadata,
    number(),
    Column("uuid", text(36), nullable=False, unique=True),
    Column("name", text(), nullable=False),
    Column("transport_url", long_text(), nullable=False),
    Column("database_connection", long_text(), nullable=False),
    Column("disabled", Boolean, nullable=False),
)

host_mappings = table(
    "host_mappings",
    metadata,
    number(),
    Column("host", text(), nullable=False, unique=True),
    Column("cell", text(36), ForeignKey(cell_mappings.c.uuid), nullable=False),
)

instance_mappings = table(
    "instance_mappings",
    metadata,
    number(),
    Column("instance_uuid", text(36), nullable=False, unique=True),
    Column("cell", text(36), ForeignKey(cell_mappings.c.uuid)),
    Column("project_id", text(), nullable=False),
    Column("user_id", text(), nullable=False),
    Column("reservation_id", text(), nullable=False),
    Column("queued_for_delete", Boolean, nullable=False),
    Column("created_at", Time, nullable=False),
    Index("instance_mappings_project_id_user_id_idx", "project_id", "user_id"),
    Index("instance_mappings_cell_project_id_idx", "cell", "project_id"),
)

# Emptied as servers get their cells, so it stays small; secrets of a boot live in it until then.
build_requests = table(
    "build_requests",
    metadata,
    number(),
    Column("instance_uuid", text(36), nullable=False, unique=True),
    Column("project_id", text(), nullable=False),
    Column("run", text(36), nullable=False),
    Column("taken", Boolean, nullable=False, default=False),
    Column("request", Json(dict[str, Any]), nullable=False),
    Column("created_at", Time, nullable=False),
    Index("build_requests_project_id_idx", "project_id"),
)

request_specs = table(
    "request_specs",
    metadata,
    number(),
    Column("instance_uuid", text(36), nullable=False, unique=True),
    Column("spec", Json(RequestSpec), nullable=False),
)

decisions = table(
    "decisions",
    metadata,
    number(),
    Column("instance_uuid", text(36), nullable=False),
    Column("request_id", text(), nullable=False),
    Column("created_at", Time, nullable=False),
    Column("why", Json(Why), nullable=False),
    Index("decisions_instance_uuid_idx", "instance_uuid", "id"),
    Index("decisions_created_at_idx", "created_at"),
)

flavors = table(
    "flavors",
    metadata,
    number(),
    Column("flavorid", text(), nullable=False, unique=True),
    Column("name", text(), nullable=False, unique=True),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("root_gb", Integer, nullable=False),
    Column("ephemeral_gb", Integer, nullable=False),
    Column("swap", Integer, nullable=False),
    Column("rxtx_factor", Float, nullable=False),
    Column("is_public", Boolean, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("description", long_text()),
    Column("created_at", Time, nullable=False),
    Column("updated_at", Time),
)

flavor_extra_specs = table(
    "flavor_extra_specs",
    metadata,
    Column("flavor_id", Integer, ForeignKey(flavors.c.id, ondelete="CASCADE"), primary_key=True),
    Column("key", text(), primary_key=True),
    Column("value", text(), nullable=False),
)

flavor_projects = table(
    "flavor_projects",
    metadata,
    Column("flavor_id", Integer, ForeignKey(flavors.c.id, ondelete="CASCADE"), primary_key=True),
    Column("project_id", text(), primary_key=True),
    Index("flavor_projects_project_id_idx", "project_id"),
)

key_pairs = table(
    "key_pairs",
    metadata,
    number(),
    Column("user_id", text(), nullable=False),
    Column("name", text(), nullable=False),
    Column("type", text(16), nullable=False),
    Column("fingerprint", text(), nullable=False),
    Column("public_key", long_text(), nullable=False),
    Column("created_at", Time, nullable=False),
    UniqueConstraint("user_id", "name", name="uniq_key_pairs0user_id0name"),
)

aggregates = table(
    "aggregates",
    metadata,
    number(),
    Column("uuid", text(36), nullable=False, unique=True),
    Column("name", text(), nullable=False, unique=True),
    Column("created_at", Time, nullable=False),
    Column("updated_at", Time),
)

aggregate_hosts = table(
    "aggregate_hosts",
    metadata,
    number(),
    Column("aggregate_id", Integer, ForeignKey(aggregates.c.id, ondelete="CASCADE"), nullable=False),
    Column("host", text(), nullable=False),
    UniqueConstraint("host", "aggregate_id", name="uniq_aggregate_hosts0host0aggregate_id"),
    Index("aggregate_hosts_aggregate_id_idx", "aggregate_id"),
)

aggregate_metadata = table(
    "aggregate_metadata",
    metadata,
    Column("aggregate_id", Integer, ForeignKey(aggregates.c.id, ondelete="CASCADE"), primary_key=True),
    Column("key", text(), primary_key=True),
    Column("value", text(), nullable=False),
    Index("aggregate_metadata_key_idx", "key"),
)

instance_groups = table(
    "instance_groups",
    metadata,
    number(),
    Column("uuid", text(36), nullable=False, unique=True),
    Column("name", text(), nullable=False),
    Column("policy", text(), nullable=False),
    Column("rules", Json(dict[str, Any]), nullable=False),
    Column("project_id", text(), nullable=False),
    Column("user_id", text(), nullable=False),
    Column("created_at", Time, nullable=False),
    Index("instance_groups_project_id_idx", "project_id"),
)

instance_group_member = table(
    "instance_group_member",
    metadata,
    number(),
    Column("group_id", Integer, ForeignKey(instance_groups.c.id, ondelete="CASCADE"), nullable=False),
    Column("instance_uuid", text(36), nullable=False),
    UniqueConstraint("instance_uuid", "group_id", name="uniq_instance_group_member0instance_uuid0group_id"),
    Index("instance_group_member_group_id_idx", "group_id"),
)

# One table for the limits of a class, a project and a user: an empty user_id is the project's own.
quotas = table(
    "quotas",
    metadata,
    Column("project_id", text(), primary_key=True),
    Column("user_id", text(), primary_key=True),
    Column("resource", text(64), primary_key=True),
    Column("hard_limit", Integer, nullable=False),
)

quota_classes = table(
    "quota_classes",
    metadata,
    Column("class_name", text(), primary_key=True),
    Column("resource", text(64), primary_key=True),
    Column("hard_limit", Integer, nullable=False),
)

flows = schema_flow.declare(metadata)
