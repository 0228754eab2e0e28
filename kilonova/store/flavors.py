"""Flavors, their extra specs, and who may use the private ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from sqlalchemy import ColumnElement, Select, and_, asc, desc, exists, or_, select
from sqlalchemy import delete as delete_rows
from sqlalchemy import insert as insert_rows
from sqlalchemy import update as update_rows

from kilonova.base.engine import utcnow
from kilonova.base.errors import BadRequest, Conflict, FlavorNotFound, NotFound
from kilonova.core.flavor import Flavor
from kilonova.store.schema_api import flavor_extra_specs, flavor_projects, flavors
from kilonova.store.session import AnyRow, Tx

_C = flavors.c
_BESIDE = ("id", "extra_specs", "projects")
_COLUMNS = [name for name in Flavor.__struct_fields__ if name not in _BESIDE]


def insert(tx: Tx, flavor: Flavor) -> Flavor:
    """Enter a new flavor with its extra specs and projects; the answer has its ``id``. Conflict on its id or name."""
    if tx.scalar(select(_C.id).where(_C.flavorid == flavor.flavorid)) is not None:
        raise Conflict(f"Flavor with ID {flavor.flavorid} already exists.")
    if tx.scalar(select(_C.id).where(_C.name == flavor.name)) is not None:
        raise Conflict(f"Flavor with name {flavor.name} already exists.")
    values = {name: getattr(flavor, name) for name in _COLUMNS} | {"created_at": flavor.created_at or utcnow()}
    key = tx.execute(insert_rows(flavors), values).inserted_primary_key
    assert key is not None
    put_specs(tx, flavor.flavorid, flavor.extra_specs)
    for project in flavor.projects:
        add_access(tx, flavor.flavorid, project)
    return msgspec.structs.replace(flavor, id=key[0], created_at=values["created_at"])


def get(tx: Tx, flavorid: str) -> Flavor:
    """The flavor of that id (as users know it); FlavorNotFound."""
    return _only(tx, select(flavors).where(_C.flavorid == flavorid), flavorid)


def get_by_name(tx: Tx, name: str) -> Flavor:
    """The flavor of that name; FlavorNotFound."""
    return _only(tx, select(flavors).where(_C.name == name), name)


def _only(tx: Tx, query: Select[*tuple[object, ...]], named: str) -> Flavor:
    found = _records(tx, query)
    if not found:
        raise FlavorNotFound(flavor=named)
    return found[0]


def listing(
    tx: Tx,
    *,
    is_public: bool | None = True,
    project_id: str | None = None,
    min_ram: int | None = None,
    min_disk: int | None = None,
    sort_key: str = "flavorid",
    sort_dir: Literal["asc", "desc"] = "asc",
    limit: int | None = None,
    marker: str | None = None,
) -> list[Flavor]:
    """Flavors that are not disabled. ``project_id``: with the public ones also what that project has access to.

    ``is_public`` None is all. BadRequest for a ``marker`` (a flavorid) that is not there or an unknown ``sort_key``.
    """
    query = select(flavors).where(_C.disabled.is_(False))
    if is_public is not None:
        wanted: ColumnElement[bool] = _C.is_public.is_(is_public)
        if project_id is not None and is_public:
            granted = select(1).where(flavor_projects.c.flavor_id == _C.id, flavor_projects.c.project_id == project_id)
            wanted = or_(wanted, exists(granted))
        query = query.where(wanted)
    if min_ram is not None:
        query = query.where(_C.memory_mb >= min_ram)
    if min_disk is not None:
        query = query.where(_C.root_gb >= min_disk)
    if sort_key not in _C:
        raise BadRequest(f"Flavors cannot be sorted by {sort_key}.")
    column, direction = _C[sort_key], asc if sort_dir == "asc" else desc
    if marker is not None:
        last = tx.row(select(_C.id, column).where(_C.flavorid == marker))
        if last is None:
            raise BadRequest(f"marker [{marker}] not found")
        beyond = column > last[1] if sort_dir == "asc" else column < last[1]
        behind = _C.id > last[0] if sort_dir == "asc" else _C.id < last[0]
        query = query.where(or_(beyond, and_(column == last[1], behind)))
    query = query.order_by(direction(column), direction(_C.id))
    return _records(tx, query if limit is None else query.limit(limit))


def update_description(tx: Tx, flavorid: str, description: str | None) -> Flavor:
    """Set the description; FlavorNotFound."""
    tx.execute(update_rows(flavors).where(_C.flavorid == flavorid).values(description=description, updated_at=utcnow()))
    return get(tx, flavorid)


def delete(tx: Tx, flavorid: str) -> None:
    """Remove the flavor; servers keep their copy of it. FlavorNotFound."""
    if tx.changes(delete_rows(flavors).where(_C.flavorid == flavorid)) == 0:
        raise FlavorNotFound(flavor=flavorid)


def put_specs(tx: Tx, flavorid: str, specs: Mapping[str, str]) -> None:
    """Add or change extra specs; FlavorNotFound."""
    number, columns = _number(tx, flavorid), flavor_extra_specs.c
    tx.execute(delete_rows(flavor_extra_specs).where(columns.flavor_id == number, columns.key.in_(list(specs))))
    if specs:
        rows = [{"flavor_id": number, "key": key, "value": value} for key, value in specs.items()]
        tx.execute(insert_rows(flavor_extra_specs), rows)


def delete_spec(tx: Tx, flavorid: str, key: str) -> None:
    """Remove an extra spec; FlavorNotFound, NotFound."""
    number, columns = _number(tx, flavorid), flavor_extra_specs.c
    if tx.changes(delete_rows(flavor_extra_specs).where(columns.flavor_id == number, columns.key == key)) == 0:
        raise NotFound(f"Flavor {flavorid} has no extra specs with key {key}.")


def access(tx: Tx, flavorid: str) -> list[str]:
    """The projects that have access to the flavor; FlavorNotFound."""
    return get(tx, flavorid).projects


def add_access(tx: Tx, flavorid: str, project_id: str) -> None:
    """Give a project access; FlavorNotFound, Conflict."""
    number, columns = _number(tx, flavorid), flavor_projects.c
    held = select(columns.flavor_id).where(columns.flavor_id == number, columns.project_id == project_id)
    if tx.scalar(held) is not None:
        raise Conflict(f"Flavor access already exists for flavor {flavorid} and project {project_id} combination.")
    tx.execute(insert_rows(flavor_projects), {"flavor_id": number, "project_id": project_id})


def remove_access(tx: Tx, flavorid: str, project_id: str) -> None:
    """Take a project's access; FlavorNotFound, NotFound."""
    number, columns = _number(tx, flavorid), flavor_projects.c
    query = delete_rows(flavor_projects).where(columns.flavor_id == number, columns.project_id == project_id)
    if tx.changes(query) == 0:
        raise NotFound(f"Flavor access not found for {flavorid} / {project_id} combination.")


def _number(tx: Tx, flavorid: str) -> int:
    found: int | None = tx.scalar(select(_C.id).where(_C.flavorid == flavorid).with_for_update())
    if found is None:
        raise FlavorNotFound(flavor=flavorid)
    return found


def _records(tx: Tx, query: Select[*tuple[object, ...]]) -> list[Flavor]:
    by_number = {row.id: _record(row) for row in tx.rows(query)}
    specs, projects = flavor_extra_specs.c, flavor_projects.c
    if by_number:
        numbers = list(by_number)
        for row in tx.rows(select(flavor_extra_specs).where(specs.flavor_id.in_(numbers)).order_by(specs.key)):
            by_number[row.flavor_id].extra_specs[row.key] = row.value
        granted = select(flavor_projects).where(projects.flavor_id.in_(numbers)).order_by(projects.project_id)
        for row in tx.rows(granted):
            by_number[row.flavor_id].projects.append(row.project_id)
    return list(by_number.values())


def _record(row: AnyRow) -> Flavor:
    return Flavor(id=row.id, **{name: getattr(row, name) for name in _COLUMNS})
