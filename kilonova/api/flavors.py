"""Flavors: list, show, create, describe, delete."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from kilonova.api.call import Answer, Call
from kilonova.api.inputs import (
    LaxBool,
    LaxFloat,
    LaxInt,
    Limit,
    NoQuery,
    Short,
    as_bool,
    lax_int,
    name_of,
    positive,
    printable,
)
from kilonova.api.paging import page_size, with_links
from kilonova.api.rules import ANYBODY
from kilonova.base.body import Body, Query, wire
from kilonova.base.errors import BadRequest, FlavorNotFound
from kilonova.base.operation import operation
from kilonova.base.view import Page, View, field
from kilonova.core.flavor import Flavor
from kilonova.store import flavors
from kilonova.store.session import Tx

_SPECS_RULE = "os_compute_api:os-flavor-extra-specs:index"

_SORT_KEYS = Literal[
    "created_at",
    "description",
    "disabled",
    "ephemeral_gb",
    "flavorid",
    "id",
    "is_public",
    "memory_mb",
    "name",
    "root_gb",
    "rxtx_factor",
    "swap",
    "updated_at",
    "vcpu_weight",
    "vcpus",
]


def _id_of(value: str | float | None) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else str(value)


def _sortable(key: str) -> str:
    # The weight of virtual CPUs is a column of old that nothing ever set: all are equal in it.
    return "id" if key == "vcpu_weight" else key


def _sortable_since_2_102(key: str) -> str:
    if key == "rxtx_factor":
        raise ValueError("'rxtx_factor' is not a sort key any more")
    return _sortable(key)


class NewFlavor(Body):
    """A flavor to be made."""

    name: Annotated[Short, wire(check=name_of)]
    ram: Annotated[LaxInt, lax_int(minimum=1)]
    vcpus: Annotated[LaxInt, lax_int(minimum=1)]
    disk: Annotated[LaxInt, lax_int()]
    id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^(?! )[a-zA-Z0-9. _\-]+(?<! )\Z")]
        | int
        | float
        | None,
        wire(check=_id_of),
    ] = None
    ephemeral: Annotated[LaxInt, lax_int("OS-FLV-EXT-DATA:ephemeral")] = 0
    swap: Annotated[LaxInt, lax_int()] = 0
    rxtx_factor: Annotated[LaxFloat, wire(until="2.101", check=positive)] = 1.0
    is_public: Annotated[LaxBool, wire("os-flavor-access:is_public", check=as_bool)] = True
    description: Annotated[Annotated[str, Meta(max_length=65535)] | None, wire(since="2.55", check=printable)] = None


class CreateFlavor(Body):
    """POST /flavors."""

    flavor: NewFlavor


class Description(Body):
    """What may be changed of a flavor."""

    description: Annotated[Annotated[str, Meta(max_length=65535)] | None, wire(check=printable)]


class UpdateFlavor(Body):
    """PUT /flavors/{flavor_id}."""

    flavor: Description


class FlavorsQuery(Query):
    """The query of both lists."""

    strict_since: ClassVar[str | None] = "2.75"

    limit: Limit | None = None
    marker: str | None = None
    is_public: str | None = None
    min_ram: Annotated[str | None, wire("minRam")] = None
    min_disk: Annotated[str | None, wire("minDisk")] = None
    sort_key: Annotated[_SORT_KEYS, wire("sort_key", until="2.101", check=_sortable)] = "flavorid"
    sort_key_now: Annotated[_SORT_KEYS, wire("sort_key", since="2.102", check=_sortable_since_2_102)] = "flavorid"
    sort_dir: Literal["asc", "desc"] = "asc"
    name: Annotated[str | None, wire(since="2.102")] = None


def _get(name: str) -> Callable[[Flavor, Page[Flavor]], Any]:
    return lambda flavor, page: getattr(flavor, name)


FLAVOR = View(
    field("id", _get("flavorid")),
    field("name", _get("name")),
    field("ram", _get("memory_mb"), only={"show"}),
    field("disk", _get("root_gb"), only={"show"}),
    field("swap", lambda flavor, page: flavor.swap or "", until="2.74", only={"show"}),
    field("swap", _get("swap"), since="2.75", only={"show"}),
    field("OS-FLV-EXT-DATA:ephemeral", _get("ephemeral_gb"), only={"show"}),
    field("OS-FLV-DISABLED:disabled", _get("disabled"), until="2.101", only={"show"}),
    field("vcpus", _get("vcpus"), only={"show"}),
    field("os-flavor-access:is_public", _get("is_public"), only={"show"}),
    field("rxtx_factor", lambda flavor, page: flavor.rxtx_factor or "", until="2.101", only={"show"}),
    field("links", lambda flavor, page: page.env.links("flavors", flavor.flavorid)),
    field("description", _get("description"), since="2.55"),
    field("extra_specs", _get("extra_specs"), since="2.61", rule=_SPECS_RULE, only={"show"}),
)


def render(call: Call[Any], found: list[Flavor], *, occasion: str = "show") -> list[dict[str, Any]]:
    """The flavors as the request's version has them."""
    page = Page(found, version=call.version, env=call)
    return FLAVOR.render(page, occasion=occasion, allows=call.allows)


def visible(call: Call[Any], flavor_id: str) -> Flavor:
    """The flavor; FlavorNotFound also for one that the caller's project may not use."""
    with call.services.cells.api.read() as tx:
        found = flavors.get(tx, flavor_id)
    if found.is_public or call.context.is_admin or call.context.project_id in found.projects:
        return found
    raise FlavorNotFound(flavor=flavor_id)


@operation("GET", "/flavors", rule=ANYBODY, query=FlavorsQuery, refuses={400})
def list_flavors(call: Call[None]) -> dict[str, Any]:
    """The flavors that the caller may use, briefly."""
    return _list(call, occasion="list", collection="flavors")


@operation("GET", "/flavors/detail", rule=ANYBODY, query=FlavorsQuery, refuses={400})
def list_flavors_in_detail(call: Call[None]) -> dict[str, Any]:
    """The flavors that the caller may use."""
    return _list(call, occasion="show", collection="flavors/detail")


def _list(call: Call[None], *, occasion: str, collection: str) -> dict[str, Any]:
    call.authorize()
    query: FlavorsQuery = call.query
    size = page_size(call, query.limit)
    found: list[Flavor] = []
    if size:
        with call.services.cells.api.read() as tx:
            found = _page(call, tx, size=size)
    body = {"flavors": render(call, found, occasion=occasion)}
    return with_links(
        call, body, "flavors", collection=collection, size=size, markers=[flavor.flavorid for flavor in found]
    )


def _page(call: Call[None], tx: Tx, *, size: int) -> list[Flavor]:
    query: FlavorsQuery = call.query
    if query.marker is not None:
        try:
            flavors.get(tx, query.marker)
        except FlavorNotFound:
            raise BadRequest(f"marker [{query.marker}] not found") from None
    found = flavors.listing(
        tx,
        is_public=_shown(call, query.is_public) if call.context.is_admin else True,
        project_id=call.context.project_id,
        min_ram=_number(query.min_ram, "Invalid min_ram filter [%s]"),
        min_disk=_number(query.min_disk, "Invalid minDisk filter [%s]"),
        sort_key=query.sort_key_now if call.since("2.102") else query.sort_key,
        sort_dir=query.sort_dir,
        limit=size if query.name is None else None,
        marker=query.marker,
    )
    return found if query.name is None else [flavor for flavor in found if flavor.name == query.name][:size]


def _shown(call: Call[None], asked: str | None) -> bool | None:
    """Which flavors an administrator sees: public ones (True), the others (False), all (None)."""
    if asked is None:
        return True
    if asked.lower() == "none":
        return None
    try:
        return _loose_bool(asked)
    except ValueError:
        raise BadRequest(f"Invalid is_public filter [{asked}]") from None


def _loose_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "t", "true", "on", "y", "yes"):
        return True
    if lowered in ("0", "f", "false", "off", "n", "no"):
        return False
    raise ValueError(text)


def _number(text: str | None, complaint: str) -> int | None:
    if text is None:
        return None
    try:
        number = int(text[:20])
    except ValueError:
        raise BadRequest(complaint % text) from None
    return max(-1, min(number, 2**31 - 1))


@operation("GET", "/flavors/{flavor_id}", rule=ANYBODY, query=NoQuery, refuses={404})
def show_flavor(call: Call[None]) -> dict[str, Any]:
    """One flavor."""
    call.authorize()
    return {"flavor": render(call, [visible(call, call.params["flavor_id"])])[0]}


@operation("POST", "/flavors", rule="os_compute_api:os-flavor-manage:create", body=CreateFlavor, refuses={400, 409})
def create_flavor(call: Call[CreateFlavor]) -> dict[str, Any]:
    """Make a flavor; one without an id gets a UUID."""
    call.authorize()
    asked = call.body.flavor
    flavor = Flavor(
        flavorid=str(asked.id) if asked.id is not None else str(uuid.uuid4()),
        name=asked.name,
        memory_mb=int(asked.ram),
        vcpus=int(asked.vcpus),
        root_gb=int(asked.disk),
        ephemeral_gb=int(asked.ephemeral),
        swap=int(asked.swap),
        rxtx_factor=float(asked.rxtx_factor),
        is_public=bool(asked.is_public),
        description=asked.description,
    )
    made = call.services.cells.api.write(lambda tx: flavors.insert(tx, flavor))
    return {"flavor": render(call, [made])[0]}


@operation(
    "PUT",
    "/flavors/{flavor_id}",
    rule="os_compute_api:os-flavor-manage:update",
    since="2.55",
    body=UpdateFlavor,
    refuses={400, 404},
)
def update_flavor(call: Call[UpdateFlavor]) -> dict[str, Any]:
    """Change a flavor's description."""
    call.authorize()
    flavor_id, text = call.params["flavor_id"], call.body.flavor.description
    call.services.cells.api.write(lambda tx: flavors.update_description(tx, flavor_id, text))
    return {"flavor": render(call, [visible(call, flavor_id)])[0]}


@operation("DELETE", "/flavors/{flavor_id}", rule="os_compute_api:os-flavor-manage:delete", success=202, refuses={404})
def delete_flavor(call: Call[None]) -> Answer:
    """Delete a flavor; servers keep what they had of it."""
    call.authorize()
    call.services.cells.api.write(lambda tx: flavors.delete(tx, call.params["flavor_id"]))
    return Answer(status=202)
