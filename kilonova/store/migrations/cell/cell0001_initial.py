"""The first version of the database of a cell."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kilonova.store.types import TABLE_OPTIONS, Json, Time, long_text, text

revision = "cell0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "compute_nodes",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", text(36), nullable=False, unique=True),
        sa.Column("host", text(), nullable=False),
        sa.Column("hypervisor_hostname", text(), nullable=False),
        sa.Column("mapped", sa.Boolean(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("node", Json(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("updated_at", Time(), nullable=False),
        sa.Column("deleted_at", Time()),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.UniqueConstraint(
            "host", "hypervisor_hostname", "deleted", name="uniq_compute_nodes0host0hypervisor_hostname0deleted"
        ),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("compute_nodes_updated_at_idx", "compute_nodes", ["updated_at"])
    op.create_table(
        "flow_runs",
        sa.Column("id", text(36), primary_key=True),
        sa.Column("flow", text(), nullable=False),
        sa.Column("action", text(), nullable=False),
        sa.Column("subject", text(36), nullable=False),
        sa.Column("active_subject", text(36), unique=True),
        sa.Column("exclusive", sa.Boolean(), nullable=False),
        sa.Column("request_id", text(), nullable=False),
        sa.Column("user_id", text(), nullable=False),
        sa.Column("project_id", text(), nullable=False),
        sa.Column("status", text(16), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("owner", text(), nullable=False),
        sa.Column("lease_until", Time()),
        sa.Column("due_at", Time()),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("updated_at", Time(), nullable=False),
        sa.Column("finished_at", Time()),
        sa.Column("context", Json(), nullable=False),
        sa.Column("state", Json(), nullable=False),
        sa.Column("error", Json()),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_index("flow_runs_request_id_idx", "flow_runs", ["request_id"])
    op.create_index("flow_runs_status_due_at_idx", "flow_runs", ["status", "due_at"])
    op.create_index("flow_runs_subject_created_at_idx", "flow_runs", ["subject", "created_at"])
    op.create_table(
        "instances",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", text(36), nullable=False, unique=True),
        sa.Column("project_id", text(), nullable=False),
        sa.Column("user_id", text(), nullable=False),
        sa.Column("name", text(), nullable=False),
        sa.Column("hostname", text(), nullable=False),
        sa.Column("description", text()),
        sa.Column("flavorid", text(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("flavor", Json(), nullable=False),
        sa.Column("image_id", text(36)),
        sa.Column("image_properties", Json(), nullable=False),
        sa.Column("kernel_id", text()),
        sa.Column("ramdisk_id", text()),
        sa.Column("vm_state", text(), nullable=False),
        sa.Column("task_state", text()),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("host", text()),
        sa.Column("node", text()),
        sa.Column("node_uuid", text(36)),
        sa.Column("launched_on", text()),
        sa.Column("availability_zone", text()),
        sa.Column("requested_zone", text()),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("reservation_id", text(), nullable=False),
        sa.Column("key_name", text()),
        sa.Column("key_data", long_text()),
        sa.Column("key_type", text(16), nullable=False),
        sa.Column("user_data", long_text()),
        sa.Column("config_drive", sa.Boolean(), nullable=False),
        sa.Column("root_device_name", text()),
        sa.Column("access_ip_v4", text(39)),
        sa.Column("access_ip_v6", text(39)),
        sa.Column("auto_disk_config", sa.Boolean(), nullable=False),
        sa.Column("progress", sa.Integer(), nullable=False),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("locked_by", text(16)),
        sa.Column("locked_reason", text()),
        sa.Column("nics", Json(), nullable=False),
        sa.Column("addresses_v4", long_text(), nullable=False),
        sa.Column("addresses_v6", long_text(), nullable=False),
        sa.Column("security_groups", Json(), nullable=False),
        sa.Column("trusted_certs", Json()),
        sa.Column("system_metadata", Json(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("volume_backed", sa.Boolean(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("updated_at", Time()),
        sa.Column("launched_at", Time()),
        sa.Column("terminated_at", Time()),
        sa.Column("deleted_at", Time()),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("instances_deleted_at_idx", "instances", ["deleted_at"])
    op.create_index("instances_deleted_created_at_idx", "instances", ["deleted", "created_at", "uuid"])
    op.create_index("instances_deleted_host_idx", "instances", ["deleted", "host"])
    op.create_index(
        "instances_deleted_project_id_created_at_idx", "instances", ["deleted", "project_id", "created_at", "uuid"]
    )
    op.create_index("instances_project_id_updated_at_idx", "instances", ["project_id", "updated_at"])
    op.create_index("instances_reservation_id_idx", "instances", ["reservation_id"])
    op.create_index("instances_updated_at_idx", "instances", ["updated_at"])
    op.create_table(
        "services",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", text(36), nullable=False, unique=True),
        sa.Column("binary", text(), nullable=False),
        sa.Column("host", text(), nullable=False),
        sa.Column("topic", text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("report_count", sa.Integer(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", text()),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("availability_zone", text()),
        sa.Column("last_seen_up", Time()),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("updated_at", Time()),
        sa.Column("deleted_at", Time()),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.UniqueConstraint("host", "binary", "deleted", name="uniq_services0host0binary0deleted"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "block_device_mapping",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", text(36), nullable=False, unique=True),
        sa.Column("instance_uuid", text(36), sa.ForeignKey("instances.uuid", ondelete="CASCADE"), nullable=False),
        sa.Column("volume_id", text(36)),
        sa.Column("device", Json(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("updated_at", Time()),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("block_device_mapping_instance_uuid_idx", "block_device_mapping", ["instance_uuid"])
    op.create_index("block_device_mapping_volume_id_idx", "block_device_mapping", ["volume_id"])
    op.create_table(
        "flow_events",
        sa.Column("run_id", text(36), sa.ForeignKey("flow_runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("step", text(), nullable=False),
        sa.Column("what", text(16), nullable=False),
        sa.Column("at", Time(), nullable=False),
        sa.Column("public", text(), nullable=False),
        sa.Column("host", text(), nullable=False),
        sa.Column("note", long_text(), nullable=False),
        sa.Column("output", Json(), nullable=False),
        sa.Column("error", Json()),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "instance_faults",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("instance_uuid", text(36), sa.ForeignKey("instances.uuid", ondelete="CASCADE"), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("message", text(), nullable=False),
        sa.Column("details", long_text(), nullable=False),
        sa.Column("host", text(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("instance_faults_instance_uuid_idx", "instance_faults", ["instance_uuid", "id"])
    op.create_table(
        "instance_metadata",
        sa.Column("instance_uuid", text(36), sa.ForeignKey("instances.uuid", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", text(), primary_key=True),
        sa.Column("value", text(), nullable=False),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "tags",
        sa.Column("resource_id", text(36), sa.ForeignKey("instances.uuid", ondelete="CASCADE"), primary_key=True),
        sa.Column("tag", text(80), primary_key=True),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_index("tags_tag_idx", "tags", ["tag"])
