"""The first version of the API database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kilonova.store.types import TABLE_OPTIONS, Json, Time, long_text, text

revision = "api0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "aggregates",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", text(36), nullable=False, unique=True),
        sa.Column("name", text(), nullable=False, unique=True),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("updated_at", Time()),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "build_requests",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("instance_uuid", text(36), nullable=False, unique=True),
        sa.Column("project_id", text(), nullable=False),
        sa.Column("run", text(36), nullable=False),
        sa.Column("taken", sa.Boolean(), nullable=False),
        sa.Column("request", Json(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("build_requests_project_id_idx", "build_requests", ["project_id"])
    op.create_table(
        "cell_mappings",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", text(36), nullable=False, unique=True),
        sa.Column("name", text(), nullable=False),
        sa.Column("transport_url", long_text(), nullable=False),
        sa.Column("database_connection", long_text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("instance_uuid", text(36), nullable=False),
        sa.Column("request_id", text(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("why", Json(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("decisions_created_at_idx", "decisions", ["created_at"])
    op.create_index("decisions_instance_uuid_idx", "decisions", ["instance_uuid", "id"])
    op.create_table(
        "flavors",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("flavorid", text(), nullable=False, unique=True),
        sa.Column("name", text(), nullable=False, unique=True),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Float(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("description", long_text()),
        sa.Column("created_at", Time(), nullable=False),
        sa.Column("updated_at", Time()),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
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
        "instance_groups",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", text(36), nullable=False, unique=True),
        sa.Column("name", text(), nullable=False),
        sa.Column("policy", text(), nullable=False),
        sa.Column("rules", Json(), nullable=False),
        sa.Column("project_id", text(), nullable=False),
        sa.Column("user_id", text(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("instance_groups_project_id_idx", "instance_groups", ["project_id"])
    op.create_table(
        "key_pairs",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("user_id", text(), nullable=False),
        sa.Column("name", text(), nullable=False),
        sa.Column("type", text(16), nullable=False),
        sa.Column("fingerprint", text(), nullable=False),
        sa.Column("public_key", long_text(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sa.UniqueConstraint("user_id", "name", name="uniq_key_pairs0user_id0name"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "quota_classes",
        sa.Column("class_name", text(), primary_key=True),
        sa.Column("resource", text(64), primary_key=True),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "quotas",
        sa.Column("project_id", text(), primary_key=True),
        sa.Column("user_id", text(), primary_key=True),
        sa.Column("resource", text(64), primary_key=True),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "request_specs",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("instance_uuid", text(36), nullable=False, unique=True),
        sa.Column("spec", Json(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("aggregate_id", sa.Integer(), sa.ForeignKey("aggregates.id", ondelete="CASCADE"), nullable=False),
        sa.Column("host", text(), nullable=False),
        sa.UniqueConstraint("host", "aggregate_id", name="uniq_aggregate_hosts0host0aggregate_id"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("aggregate_hosts_aggregate_id_idx", "aggregate_hosts", ["aggregate_id"])
    op.create_table(
        "aggregate_metadata",
        sa.Column("aggregate_id", sa.Integer(), sa.ForeignKey("aggregates.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", text(), primary_key=True),
        sa.Column("value", text(), nullable=False),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_index("aggregate_metadata_key_idx", "aggregate_metadata", ["key"])
    op.create_table(
        "flavor_extra_specs",
        sa.Column("flavor_id", sa.Integer(), sa.ForeignKey("flavors.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", text(), primary_key=True),
        sa.Column("value", text(), nullable=False),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "flavor_projects",
        sa.Column("flavor_id", sa.Integer(), sa.ForeignKey("flavors.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("project_id", text(), primary_key=True),
        sqlite_autoincrement=False,
        **TABLE_OPTIONS,
    )
    op.create_index("flavor_projects_project_id_idx", "flavor_projects", ["project_id"])
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
        "host_mappings",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("host", text(), nullable=False, unique=True),
        sa.Column("cell", text(36), sa.ForeignKey("cell_mappings.uuid"), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "instance_group_member",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("group_id", sa.Integer(), sa.ForeignKey("instance_groups.id", ondelete="CASCADE"), nullable=False),
        sa.Column("instance_uuid", text(36), nullable=False),
        sa.UniqueConstraint("instance_uuid", "group_id", name="uniq_instance_group_member0instance_uuid0group_id"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("instance_group_member_group_id_idx", "instance_group_member", ["group_id"])
    op.create_table(
        "instance_mappings",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("instance_uuid", text(36), nullable=False, unique=True),
        sa.Column("cell", text(36), sa.ForeignKey("cell_mappings.uuid")),
        sa.Column("project_id", text(), nullable=False),
        sa.Column("user_id", text(), nullable=False),
        sa.Column("reservation_id", text(), nullable=False),
        sa.Column("queued_for_delete", sa.Boolean(), nullable=False),
        sa.Column("created_at", Time(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("instance_mappings_cell_project_id_idx", "instance_mappings", ["cell", "project_id"])
    op.create_index("instance_mappings_project_id_user_id_idx", "instance_mappings", ["project_id", "user_id"])
