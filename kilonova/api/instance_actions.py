"""What was done to a server, by whom, and how it ended: read from the journals of its runs."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec

from kilonova.api.call import Call
from kilonova.api.formats import moment, optional
from kilonova.api.inputs import Limit, NoQuery
from kilonova.api.moments import aware, micro
from kilonova.api.paging import next_links, page_size
from kilonova.base.body import Query, wire
from kilonova.base.errors import BadRequest, NotFound, ServerNotFound
from kilonova.base.operation import operation
from kilonova.base.view import Page, View, field
from kilonova.store import journal, servers
from kilonova.store.journal import Action, ActionEvent
from kilonova.store.session import Database, Tx

_RULE = "os_compute_api:os-instance-actions:"


class ActionsQuery(Query):
    """The query of the list."""

    strict_since: ClassVar[str | None] = "2.58"

    limit: Annotated[Limit | None, wire(since="2.58")] = None
    marker: Annotated[str | None, wire(since="2.58")] = None
    changes_since: Annotated[str | None, wire("changes-since", since="2.58", check=optional(moment))] = None
    changes_before: Annotated[str | None, wire("changes-before", since="2.66", check=optional(moment))] = None


def _host_id(event: ActionEvent, page: Page[ActionEvent]) -> str:
    if not event.host:
        return ""
    return hashlib.sha224(f"{page.env.context.project_id}{event.host}".encode()).hexdigest()


EVENT = View(
    field("event", lambda event, page: event.event),
    field("start_time", lambda event, page: micro(event.start_time)),
    field("finish_time", lambda event, page: micro(event.finish_time)),
    field("result", lambda event, page: event.result),
    field("traceback", lambda event, page: event.traceback, rule=_RULE + "events"),
    field("host", lambda event, page: event.host, since="2.62", rule=_RULE + "events"),
    field("hostId", _host_id, since="2.62"),
    field("details", lambda event, page: event.details, since="2.84", rule=_RULE + "events:details"),
)

ACTION = View(
    field("action", lambda action, page: action.action),
    field("instance_uuid", lambda action, page: action.server),
    field("request_id", lambda action, page: action.request_id),
    field("user_id", lambda action, page: action.user_id),
    field("project_id", lambda action, page: action.project_id),
    field("start_time", lambda action, page: micro(action.start_time)),
    field("message", lambda action, page: action.message),
    field("updated_at", lambda action, page: micro(action.updated_at), since="2.58"),
)


def _journals(call: Call[Any], server: str) -> list[Database]:
    """The databases that may hold runs on a server; PolicyRefused, ServerNotFound (a deleted one only before 2.21)."""
    cells = call.services.cells
    mapping = cells.mapping(server)
    if mapping is None or (mapping.project_id != call.context.project_id and not call.context.is_admin):
        raise ServerNotFound(server=server)
    found = [cells.api]
    if mapping.cell is not None:
        found.append(cells.database(mapping.cell))
    if not call.since("2.21"):
        if mapping.queued_for_delete and mapping.cell is None:
            raise ServerNotFound(server=server)
        if mapping.cell is not None:
            with found[-1].read() as tx:
                servers.get(tx, server)
    call.authorize({"project_id": mapping.project_id, "user_id": mapping.user_id})
    return found


def _gathered(databases: list[Database], read: Callable[[Tx], list[Action]]) -> list[Action]:
    """Actions of several journals, newest first.

    A request that began before the server had a cell may have left runs in two of them: they are one action.
    """
    merged: dict[tuple[str, str], Action] = {}
    for database in databases:
        with database.read() as tx:
            for action in read(tx):
                key = (action.request_id, action.action)
                merged[key] = _merged(merged[key], action) if key in merged else action
    return sorted(merged.values(), key=lambda action: aware(action.start_time), reverse=True)


def _merged(one: Action, other: Action) -> Action:
    events = sorted([*one.events, *other.events], key=lambda event: aware(event.start_time))
    last = max(one.updated_at, other.updated_at)
    return msgspec.structs.replace(
        one,
        start_time=min(one.start_time, other.start_time),
        finish_time=last if one.finish_time and other.finish_time else None,
        updated_at=last,
        message=one.message or other.message,
        events=events,
    )


@operation(
    "GET",
    "/servers/{server_id}/os-instance-actions",
    rule=_RULE + "list",
    query=ActionsQuery,
    refuses={400, 404},
)
def list_instance_actions(call: Call[None]) -> dict[str, Any]:
    """The actions of a server, newest first."""
    query: ActionsQuery = call.query
    since, before = _moment(query.changes_since), _moment(query.changes_before)
    if since is not None and before is not None and since > before:
        raise BadRequest("The value of changes-since must be less than or equal to changes-before.")
    server = call.params["server_id"]
    found = _gathered(_journals(call, server), lambda tx: journal.actions(tx, server))
    if since is not None:
        found = [action for action in found if aware(action.updated_at) >= since]
    if before is not None:
        found = [action for action in found if aware(action.updated_at) <= before]
    if query.marker is not None:
        found = _behind(found, query.marker)
    size = page_size(call, query.limit) if call.since("2.58") else len(found)
    found = found[:size]
    body: dict[str, Any] = {"instanceActions": ACTION.render(Page(found, version=call.version, env=call))}
    if call.since("2.58") and size and len(found) == size:
        body["links"] = next_links(call, f"servers/{server}/os-instance-actions", found[-1].request_id)
    return body


def _moment(value: Any) -> datetime.datetime | None:
    return value if isinstance(value, datetime.datetime) else None


def _behind(found: list[Action], marker: str) -> list[Action]:
    for i, action in enumerate(found):
        if action.request_id == marker:
            return found[i + 1 :]
    raise BadRequest(f"marker [{marker}] not found")


@operation(
    "GET",
    "/servers/{server_id}/os-instance-actions/{request_id}",
    rule=_RULE + "show",
    query=NoQuery,
    refuses={404},
)
def show_instance_action(call: Call[None]) -> dict[str, Any]:
    """One action with its events; before 2.51 those are for administrators."""
    server, wanted = call.params["server_id"], call.params["request_id"]

    def read(tx: Tx) -> list[Action]:
        try:
            return [journal.action(tx, server, wanted)]
        except NotFound:
            return []

    found = _gathered(_journals(call, server), read)
    if not found:
        raise NotFound(f"Action {wanted} not found")
    action = found[0]
    body = ACTION.render(Page([action], version=call.version, env=call))[0]
    if call.since("2.51") or call.allows(_RULE + "events"):
        events: Page[ActionEvent] = Page(action.events, version=call.version, env=call)
        body["events"] = EVENT.render(events, allows=call.allows)
    return {"instanceAction": body}
