"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kilonova.store.types import TABLE_OPTIONS, Json, Time, long_text, text

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
