"""The limits that administrators set. Usage is counted, never kept."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Table, delete, insert, select

from kilonova.store.schema_api import quota_classes, quotas
from kilonova.store.session import Tx

_C, _K = quotas.c, quota_classes.c


def get_project(tx: Tx, project_id: str) -> dict[str, int]:
    """What is set for the project: resource -> limit (-1: none)."""
    return get_user(tx, project_id, "")


def put_project(tx: Tx, project_id: str, limits: Mapping[str, int]) -> None:
    """Set limits of the project; others stay."""
    put_user(tx, project_id, "", limits)


def delete_project(tx: Tx, project_id: str) -> None:
    """Go back to the defaults for the project and all of its users."""
    tx.execute(delete(quotas).where(_C.project_id == project_id))


def get_user(tx: Tx, project_id: str, user_id: str) -> dict[str, int]:
    """What is set for the user in the project."""
    query = select(_C.resource, _C.hard_limit).where(_C.project_id == project_id, _C.user_id == user_id)
    return {row.resource: row.hard_limit for row in tx.rows(query)}


def put_user(tx: Tx, project_id: str, user_id: str, limits: Mapping[str, int]) -> None:
    """Set limits of the user in the project; others stay."""
    _put(tx, quotas, {"project_id": project_id, "user_id": user_id}, limits=limits)


def delete_user(tx: Tx, project_id: str, user_id: str) -> None:
    """Go back to the project's limits for the user."""
    tx.execute(delete(quotas).where(_C.project_id == project_id, _C.user_id == user_id))


def get_class(tx: Tx, name: str = "default") -> dict[str, int]:
    """What is set for the class; the class ``default`` stands for every project."""
    query = select(_K.resource, _K.hard_limit).where(_K.class_name == name)
    return {row.resource: row.hard_limit for row in tx.rows(query)}


def put_class(tx: Tx, name: str, limits: Mapping[str, int]) -> None:
    """Set limits of the class; others stay."""
    _put(tx, quota_classes, {"class_name": name}, limits=limits)


def _put(tx: Tx, rows: Table, key: dict[str, str], *, limits: Mapping[str, int]) -> None:
    if not limits:
        return
    held: list[ColumnElement[bool]] = [rows.c[name] == value for name, value in key.items()]
    tx.execute(delete(rows).where(*held, rows.c.resource.in_(list(limits))))
    tx.execute(insert(rows), [key | {"resource": name, "hard_limit": limit} for name, limit in limits.items()])
