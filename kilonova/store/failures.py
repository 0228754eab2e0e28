"""What a database's error means: try again, unreachable, a bad pattern or text of the user's, or a defect of ours."""

from __future__ import annotations

import enum
import sqlite3

from sqlalchemy import exc


class Failure(enum.Enum):
    """``CONFLICT``: rolled back by the database, the same again may pass. ``LOST``: no connection, or it broke.
    ``FULL``: its disk has no room left, nothing was written."""

    CONFLICT = "conflict"
    LOST = "lost"
    FULL = "full"
    PATTERN = "pattern"
    TEXT = "text"
    OTHER = "other"


_SQLITE = {
    sqlite3.SQLITE_BUSY: Failure.CONFLICT,
    sqlite3.SQLITE_LOCKED: Failure.CONFLICT,
    sqlite3.SQLITE_CANTOPEN: Failure.LOST,
    sqlite3.SQLITE_IOERR: Failure.LOST,
    sqlite3.SQLITE_FULL: Failure.FULL,
    sqlite3.SQLITE_NOTADB: Failure.LOST,
    sqlite3.SQLITE_CORRUPT: Failure.LOST,
    sqlite3.SQLITE_READONLY: Failure.LOST,
}

# Lock wait timeout, deadlock, and what changed under a snapshot.
_MARIADB_CONFLICTS = {1205, 1213, 1020}
# Refused, gone, lost, killed, shutting down, too many connections, no such database, denied, and a cluster not ready.
_MARIADB_LOST = {1040, 1044, 1045, 1047, 1049, 1053, 1077, 1152, 1159, 1161, 1203, 1226, 1927, 2002, 2003}
_MARIADB_LOST |= {2006, 2013, 2014, 2055, 3024, 4031}
_MARIADB_FULL = {1021, 1114}
_MARIADB_PATTERN = 1139

# serialization_failure, deadlock_detected, lock_not_available
_POSTGRESQL_CONFLICTS = {"40001", "40P01", "55P03"}
# query_canceled is our own statement timeout; 3D000 a missing database, 25P03 a transaction left idle.
_POSTGRESQL_LOST = {"57014", "57P01", "57P02", "57P03", "57P05", "3D000", "25P03", "25006"}
_POSTGRESQL_FULL = "53100"
_POSTGRESQL_PATTERN = "2201B"


def classify(error: Exception) -> Failure:
    """What ``error`` of SQLAlchemy or its driver means."""
    if isinstance(error, exc.TimeoutError):
        return Failure.LOST  # no connection of the pool came free in time
    if not isinstance(error, exc.DBAPIError) or isinstance(error, exc.IntegrityError):
        return Failure.OTHER
    failure = _of_driver(error)
    return Failure.LOST if failure is Failure.OTHER and error.connection_invalidated else failure


def _of_driver(error: exc.DBAPIError) -> Failure:
    original = error.orig
    if isinstance(original, sqlite3.Error):
        return _SQLITE.get(getattr(original, "sqlite_errorcode", 0) & 0xFF, Failure.OTHER)
    if type(original).__module__.startswith("pymysql"):
        return _of_mariadb(original.args[0] if original is not None and original.args else 0)
    return _of_postgresql(error, original)


def _of_postgresql(error: exc.DBAPIError, original: BaseException | None) -> Failure:
    state = getattr(original, "sqlstate", None)
    if state is None and isinstance(error, exc.DataError) and "NUL" in str(original):
        return Failure.TEXT  # the driver refuses the one character that PostgreSQL cannot hold
    if state is None:
        return Failure.LOST if isinstance(error, exc.OperationalError) else Failure.OTHER
    if state in _POSTGRESQL_CONFLICTS:
        return Failure.CONFLICT
    if state == _POSTGRESQL_FULL:
        return Failure.FULL
    if state == _POSTGRESQL_PATTERN:
        return Failure.PATTERN
    return Failure.LOST if state in _POSTGRESQL_LOST or state[:2] in ("08", "28", "53") else Failure.OTHER


def _of_mariadb(code: object) -> Failure:
    if code in _MARIADB_CONFLICTS:
        return Failure.CONFLICT
    if code in _MARIADB_FULL:
        return Failure.FULL
    if code == _MARIADB_PATTERN:
        return Failure.PATTERN
    # Code 0 is the driver's own: a connection that is closed already.
    return Failure.LOST if code in _MARIADB_LOST or code == 0 else Failure.OTHER
