"""The query of the lists of servers: who may filter and sort by what, at which microversion."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, ClassVar

import msgspec

from kilonova.api import formats
from kilonova.api.call import Call
from kilonova.base.body import Query, wire
from kilonova.base.errors import BadRequest, Forbidden
from kilonova.base.versions import Version
from kilonova.core import states
from kilonova.store.listing import Listing, Sort

Texts = list[str]
Patterns = Annotated[list[str] | None, wire(check=formats.optional(formats.each(formats.regex)))]

_ALL_FILTERS = "os_compute_api:servers:allow_all_filters"


def _moments(values: list[str]) -> list[datetime.datetime]:
    return [formats.moment(value) for value in values]


class ListQuery(Query):
    """Every parameter that the lists know; those that are regular expressions must be such."""

    strict_since: ClassVar[str | None] = "2.75"

    user_id: Texts | None = None
    project_id: Texts | None = None
    tenant_id: Texts | None = None
    launch_index: Texts | None = None
    image_ref: Texts | None = None
    image: Texts | None = None
    kernel_id: Patterns = None
    ramdisk_id: Patterns = None
    hostname: Patterns = None
    key_name: Patterns = None
    power_state: Patterns = None
    vm_state: Texts | None = None
    task_state: Texts | None = None
    host: Texts | None = None
    node: Patterns = None
    flavor: Patterns = None
    reservation_id: Patterns = None
    launched_at: Patterns = None
    terminated_at: Patterns = None
    availability_zone: Patterns = None
    name: Patterns = None
    display_name: Patterns = None
    description: Patterns = None
    display_description: Patterns = None
    locked_by: Patterns = None
    uuid: Texts | None = None
    root_device_name: Patterns = None
    config_drive: Patterns = None
    access_ip_v4: Patterns = None
    access_ip_v6: Patterns = None
    auto_disk_config: Patterns = None
    progress: Patterns = None
    sort_key: Texts | None = None
    sort_dir: Texts | None = None
    all_tenants: Texts | None = None
    soft_deleted: Texts | None = None
    deleted: Texts | None = None
    status: Texts | None = None
    changes_since: Annotated[Texts | None, wire("changes-since", check=formats.optional(_moments))] = None
    changes_before: Annotated[Texts | None, wire("changes-before", since="2.66", check=formats.optional(_moments))] = (
        None
    )
    ip: Patterns = None
    ip6: Patterns = None
    created_at: Patterns = None
    limit: Annotated[str | None, wire(check=formats.optional(formats.limit))] = None
    marker: str | None = None
    tags: Annotated[Texts | None, wire(since="2.26")] = None
    tags_any: Annotated[Texts | None, wire("tags-any", since="2.26")] = None
    not_tags: Annotated[Texts | None, wire("not-tags", since="2.26")] = None
    not_tags_any: Annotated[Texts | None, wire("not-tags-any", since="2.26")] = None
    locked: Annotated[Texts | None, wire(since="2.73")] = None
    block_device_mapping: Texts | None = None
    services: Texts | None = None
    metadata: Texts | None = None
    system_metadata: Texts | None = None
    info_cache: Texts | None = None
    security_groups: Texts | None = None
    pci_devices: Texts | None = None


_JOINED = (
    "block_device_mapping",
    "services",
    "metadata",
    "system_metadata",
    "info_cache",
    "security_groups",
    "pci_devices",
)

_SORT_KEYS = (
    "access_ip_v4 access_ip_v6 auto_disk_config availability_zone config_drive created_at display_description "
    "display_name host hostname image_ref instance_type_id kernel_id key_name launch_index launched_at locked_by node "
    "power_state progress project_id ramdisk_id root_device_name task_state terminated_at updated_at user_id uuid "
    "vm_state"
).split()
_IGNORED_SORT_KEYS = (
    "architecture cell_name cleaned default_ephemeral_device default_swap_device deleted deleted_at disable_terminate "
    "ephemeral_gb ephemeral_key_uuid id key_data launched_on locked memory_mb os_type reservation_id root_gb "
    "shutdown_terminate user_data vcpus vm_mode"
).split()

_FOR_EVERYONE = {
    "2.1": {"reservation_id", "name", "status", "image", "flavor", "ip", "changes_since", "all_tenants"},
    "2.5": {"ip6"},
    "2.26": {"tags", "tags_any", "not_tags", "not_tags_any"},
    "2.66": {"changes_before"},
    "2.73": {"locked"},
    "2.83": {
        "availability_zone",
        "config_drive",
        "key_name",
        "created_at",
        "launched_at",
        "terminated_at",
        "power_state",
        "task_state",
        "vm_state",
        "progress",
        "user_id",
    },
    "2.90": {"hostname"},
}
_PLAIN = (
    "user_id launch_index image_ref image kernel_id ramdisk_id hostname key_name power_state vm_state task_state host "
    "node flavor reservation_id launched_at terminated_at availability_zone name display_name description "
    "display_description locked_by uuid root_device_name config_drive access_ip_v4 access_ip_v6 auto_disk_config "
    "progress ip ip6 created_at"
).split()
_POWER = {"pending": "0", "running": "1", "paused": "3", "shutdown": "4", "crashed": "6", "suspended": "7"}


class Wanted(msgspec.Struct, kw_only=True):
    """What a list shall have. ``bare``: nothing narrows, orders or pages it. ``nothing``: it is empty for sure."""

    listing: Listing
    marker: str | None = None
    size: int = 0
    bare: bool = True
    nothing: bool = False


def read_query(call: Call[Any], *, occasion: str) -> Wanted:
    """The list that the request asks for, within what the caller may; BadRequest, Forbidden."""
    query: ListQuery = call.query
    _refuse_foreign(call, query)
    asked = _permitted(call, query)
    listing = Listing(sort=_sort(call, query))
    _scope(call, asked, listing, occasion=occasion)
    wanted = Wanted(listing=listing, marker=query.marker)
    _narrow(call, asked, wanted)
    _narrow_time(asked, listing)
    wanted.size = min(call.options.api.max_limit if query.limit is None else int(query.limit), _most(call))
    listing.limit = wanted.size
    counted = {"all_tenants", "project_id", "tenant_id"}
    given_anything = set(asked) - counted or query.limit is not None or query.marker or query.sort_key
    wanted.bare = not given_anything
    return wanted


def _most(call: Call[Any]) -> int:
    return call.options.api.max_limit


def _refuse_foreign(call: Call[Any], query: ListQuery) -> None:
    for name in call.raw_query:
        if name.startswith("_") or name in _JOINED:
            raise BadRequest(f"Invalid filter field: {name}.")


def _permitted(call: Call[Any], query: ListQuery) -> dict[str, Any]:
    """The parameters that count for this caller; the others are passed over."""
    control = {"limit", "marker", "sort_key", "sort_dir", *_JOINED}
    asked = {
        name: getattr(query, name)
        for name in query.__struct_fields__
        if name not in control and getattr(query, name) is not None
    }
    if call.allows(_ALL_FILTERS):
        return asked
    allowed: set[str] = set()
    for version, names in _FOR_EVERYONE.items():
        if call.version >= Version.parse(version):
            allowed |= names
    return {name: value for name, value in asked.items() if name in allowed}


def _scope(call: Call[Any], asked: dict[str, Any], listing: Listing, *, occasion: str) -> None:
    """Whose servers: the project's, or everybody's by policy; another project's only together with all_tenants."""
    everybody = "all_tenants" in asked and _all_tenants(asked["all_tenants"][-1])
    if not everybody:
        call.authorize()
        listing.project_id = call.context.project_id
        return
    rule = "index" if occasion == "list" else "detail"
    call.authorize(rule=f"os_compute_api:servers:{rule}:get_all_tenants")
    projects = asked.get("project_id") or asked.get("tenant_id")
    if projects:
        listing.filters["project_id"] = list(projects)


def _all_tenants(text: str) -> bool:
    if text == "":
        return True
    found = _boolean(text)
    if found is None:
        raise BadRequest(f"Invalid value '{text}' for all_tenants: it is no boolean.")
    return found


def _boolean(text: str) -> bool | None:
    low = text.strip().lower()
    if low in ("1", "t", "true", "on", "y", "yes"):
        return True
    return False if low in ("0", "f", "false", "off", "n", "no") else None


def _sort(call: Call[Any], query: ListQuery) -> list[Sort]:
    known = [*_SORT_KEYS, *(["locked"] if call.since("2.73") else [])]
    passed_over = [] if call.since("2.75") else [key for key in _IGNORED_SORT_KEYS if key not in known]
    keys, directions = query.sort_key or [], query.sort_dir or []
    found: list[Sort] = []
    last = "desc"
    for place, key in enumerate(keys):
        if key not in known and key not in passed_over:
            raise BadRequest(
                f"Invalid input for query parameters sort_key. Value: {key}. {key!r} is not one of "
                f"{known + passed_over}"
            )
        last = directions[place] if place < len(directions) else last
        if last not in ("asc", "desc"):
            raise BadRequest(f"Unknown sort direction, must be one of: asc, desc: {last}")
        if key in ("host", "node") and not call.context.is_admin:
            raise Forbidden(f"Only administrators can sort servers by {key}")
        if key in known:
            found.append((key, last))  # type: ignore[arg-type]  # one of the two, as checked
    if len(directions) > len(keys) and not keys:
        last = directions[0]
        if last not in ("asc", "desc"):
            raise BadRequest(f"Unknown sort direction, must be one of: asc, desc: {last}")
        found.append(("created_at", last))  # type: ignore[arg-type]  # one of the two, as checked
    return found


def _narrow(call: Call[Any], asked: dict[str, Any], wanted: Wanted) -> None:
    filters = wanted.listing.filters
    for name in _PLAIN:
        if name in asked:
            filters[name] = asked[name]
    if "power_state" in filters:
        filters["power_state"] = [_POWER.get(text.lower(), text) for text in filters["power_state"]]
    if "task_state" in filters:
        filters["task_state"] = ["" if text == "None" else text for text in filters["task_state"]]
    for name in ("tags", "tags_any", "not_tags", "not_tags_any"):
        if name in asked:
            filters[name.replace("_", "-")] = [tag for text in asked[name] for tag in text.split(",")]
    if "locked" in asked:
        locked = _boolean(asked["locked"][-1])
        if locked is None:
            raise BadRequest(f"Invalid value '{asked['locked'][-1]}' for locked: it is no boolean.")
        filters["locked"] = ["true" if locked else "false"]
    if "soft_deleted" in asked and _boolean(asked["soft_deleted"][-1]):
        filters["vm_state"] = ["soft-delete"]
    _narrow_deleted(asked, wanted.listing)
    if "status" in asked:
        _narrow_status(call, asked, wanted)


def _narrow_deleted(asked: dict[str, Any], listing: Listing) -> None:
    if "deleted" in asked:
        listing.deleted = bool(_boolean(asked["deleted"][-1]))
    elif "changes_since" in asked or "changes_before" in asked:
        listing.deleted = None


def _narrow_status(call: Call[Any], asked: dict[str, Any], wanted: Wanted) -> None:
    vm_states, task_states = states.states_of(asked["status"])
    if not vm_states:
        if call.since("2.38"):
            raise BadRequest("Invalid status value")
        wanted.nothing = True
        return
    listing = wanted.listing
    if "deleted" in vm_states:
        if not call.context.is_admin:
            raise Forbidden("Only administrators may list deleted instances")
        listing.deleted = True
    listing.filters["vm_state"] = vm_states
    if task_states is not None:
        listing.filters["task_state"] = task_states


def _narrow_time(asked: dict[str, Any], listing: Listing) -> None:
    listing.changes_since = (asked.get("changes_since") or [None])[-1]
    listing.changes_before = (asked.get("changes_before") or [None])[-1]
    since, before = listing.changes_since, listing.changes_before
    if since is not None and before is not None and since > before:
        raise BadRequest("The value of changes-since must be less than or equal to changes-before.")
