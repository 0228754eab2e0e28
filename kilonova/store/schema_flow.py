"""The journal's tables, which both the API database and every cell's have."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, MetaData, Table

from kilonova.base.context import Context
from kilonova.base.errors import ErrorRecord
from kilonova.store.types import Json, Time, long_text, table, text


class FlowTables(NamedTuple):
    """``active_subject`` repeats the subject while an exclusive run holds it: its uniqueness is the lock."""

    runs: Table
    events: Table


def declare(metadata: MetaData) -> FlowTables:
    """Declare the tables in ``metadata``."""
    runs = table(
        "flow_runs",
        metadata,
        Column("id", text(36), primary_key=True),
        Column("flow", text(), nullable=False),
        Column("action", text(), nullable=False),
        Column("subject", text(36), nullable=False),
        Column("active_subject", text(36), unique=True),
        Column("exclusive", Boolean, nullable=False),
        Column("request_id", text(), nullable=False),
        Column("user_id", text(), nullable=False),
        Column("project_id", text(), nullable=False),
        Column("status", text(16), nullable=False),
        Column("seq", Integer, nullable=False),
        Column("owner", text(), nullable=False),
        Column("lease_until", Time),
        Column("due_at", Time),
        Column("created_at", Time, nullable=False),
        Column("updated_at", Time, nullable=False),
        Column("finished_at", Time),
        Column("context", Json(Context), nullable=False),
        Column("state", Json(dict[str, Any]), nullable=False),
        Column("error", Json(ErrorRecord)),
        Index("flow_runs_subject_created_at_idx", "subject", "created_at"),
        Index("flow_runs_request_id_idx", "request_id"),
        Index("flow_runs_status_due_at_idx", "status", "due_at"),
    )
    events = table(
        "flow_events",
        metadata,
        Column("run_id", text(36), ForeignKey(runs.c.id, ondelete="CASCADE"), primary_key=True),
        Column("seq", Integer, primary_key=True, autoincrement=False),
        Column("step", text(), nullable=False),
        Column("what", text(16), nullable=False),
        Column("at", Time, nullable=False),
        Column("public", text(), nullable=False),
        Column("host", text(), nullable=False),
        Column("note", long_text(), nullable=False),
        Column("output", Json(dict[str, Any]), nullable=False),
        Column("error", Json(ErrorRecord)),
    )
    return FlowTables(runs, events)
