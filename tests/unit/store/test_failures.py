"""What errors of drivers mean, and how URLs are read."""

from __future__ import annotations

import sqlite3

import psycopg.errors
import pymysql.err
import pytest
from sqlalchemy import exc

from kilonova.store.engines import normalize
from kilonova.store.failures import Failure, classify


def _sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("message")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    "original, failure",
    [
        (_sqlite(sqlite3.SQLITE_BUSY), Failure.CONFLICT),
        (_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), Failure.CONFLICT),
        (_sqlite(sqlite3.SQLITE_IOERR_READ), Failure.LOST),
        (_sqlite(sqlite3.SQLITE_FULL), Failure.FULL),
        (_sqlite(sqlite3.SQLITE_ERROR), Failure.OTHER),
        (pymysql.err.OperationalError(1213, "Deadlock found"), Failure.CONFLICT),
        (pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), Failure.CONFLICT),
        (pymysql.err.OperationalError(2013, "Lost connection"), Failure.LOST),
        (pymysql.err.OperationalError(1045, "Access denied"), Failure.LOST),
        (pymysql.err.InterfaceError(0, ""), Failure.LOST),
        (pymysql.err.OperationalError(1139, "Got error from regexp"), Failure.PATTERN),
        (pymysql.err.OperationalError(1114, "The table is full"), Failure.FULL),
        (pymysql.err.ProgrammingError(1146, "Table doesn't exist"), Failure.OTHER),
        (psycopg.errors.DeadlockDetected(), Failure.CONFLICT),
        (psycopg.errors.SerializationFailure(), Failure.CONFLICT),
        (psycopg.errors.AdminShutdown(), Failure.LOST),
        (psycopg.errors.TooManyConnections(), Failure.LOST),
        (psycopg.errors.DiskFull(), Failure.FULL),
        (psycopg.OperationalError("connection refused"), Failure.LOST),
        (psycopg.errors.InvalidRegularExpression(), Failure.PATTERN),
        (psycopg.errors.UndefinedTable(), Failure.OTHER),
    ],
    ids=lambda value: f"{type(value).__name__} {value}" if isinstance(value, Exception) else str(value.value),
)
def test_what_a_driver_s_error_means(original: Exception, failure: Failure) -> None:
    kind = exc.InterfaceError if "InterfaceError" in type(original).__name__ else exc.OperationalError
    assert classify(kind("SELECT 1", {}, original)) is failure


def test_a_broken_rule_is_never_tried_again() -> None:
    original = pymysql.err.IntegrityError(1062, "Duplicate entry")
    assert classify(exc.IntegrityError("INSERT", {}, original)) is Failure.OTHER
    assert classify(ValueError("x")) is Failure.OTHER


@pytest.mark.parametrize(
    "given, driver",
    [
        ("sqlite:////srv/nova.db", "sqlite+pysqlite"),
        ("mysql+pymysql://nova:p%40ss@db/nova?charset=utf8", "mysql+pymysql"),
        ("mysql+mysqldb://nova@db/nova", "mysql+pymysql"),
        ("mariadb://nova@db/nova", "mysql+pymysql"),
        ("postgresql://nova@db/nova", "postgresql+psycopg"),
        ("postgresql+psycopg2://nova@db/nova", "postgresql+psycopg"),
    ],
)
def test_urls_of_operators_files(given: str, driver: str) -> None:
    url = normalize(given)
    assert url.drivername == driver
    if driver.startswith("mysql"):
        assert url.query["charset"] == "utf8mb4"
    if "p%40ss" in given:
        assert url.password == "p@ss"
