"""What other services report of a server's ports, volumes and power.

Network events make the conductor read the server's ports afresh, so that its addresses (floating ones too) are right.
The other events belong to operations that are not made yet: they are answered as failed, each with its own code.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from kilonova.api.call import Answer, Call
from kilonova.api.formats import uuid_like
from kilonova.api.inputs import NoQuery
from kilonova.base.body import Body, wire
from kilonova.base.errors import DatabaseUnavailable, ServerNotFound, ValidationFailed
from kilonova.base.operation import operation

NETWORK = ("network-changed", "network-vif-plugged", "network-vif-unplugged", "network-vif-deleted")
Name = Literal[
    "network-changed",
    "network-vif-plugged",
    "network-vif-unplugged",
    "network-vif-deleted",
    "volume-extended",
    "power-update",
    "accelerator-request-bound",
    "volume-reimaged",
]
SINCE = {
    "volume-extended": (2, 51),
    "power-update": (2, 76),
    "accelerator-request-bound": (2, 82),
    "volume-reimaged": (2, 93),
}


class ExternalEvent(Body):
    """One event; ``tag`` names the port, volume or state."""

    name: Name
    server_uuid: Annotated[str, wire(check=uuid_like)]
    status: Literal["failed", "completed", "in-progress"] = "completed"
    tag: Annotated[str, Meta(max_length=255)] | UnsetType = UNSET


class ExternalEvents(Body):
    """At least one event."""

    events: Annotated[list[ExternalEvent], Meta(min_length=1)]


@operation(
    "POST",
    "/os-server-external-events",
    rule="os_compute_api:os-server-external-events:create",
    body=ExternalEvents,
    query=NoQuery,
    refuses={400, 403},
)
def report_events(call: Call[ExternalEvents]) -> Answer:
    """Take events; 207 when any of them could not be taken."""
    call.authorize()
    check_names(call)
    wanted: dict[str, set[str]] = {}
    answers = [_take(call, event, wanted) for event in call.body.events]
    for cell, servers in wanted.items():
        call.services.conductor(cell).refresh_nics(servers=sorted(servers))
    all_taken = all(answer["code"] == 200 for answer in answers)
    return Answer({"events": answers}, status=200 if all_taken else 207)


def check_names(call: Call[ExternalEvents]) -> None:
    """Names that the request's version does not know are refused."""
    for event in call.body.events:
        if tuple(call.version) < SINCE.get(event.name, (2, 0)):
            known = [name for name in (*NETWORK, *SINCE) if tuple(call.version) >= SINCE.get(name, (2, 0))]
            raise ValidationFailed(field="name", value=repr(event.name), reason=f"{event.name!r} is not one of {known}")


def _take(call: Call[ExternalEvents], event: ExternalEvent, wanted: dict[str, set[str]]) -> dict[str, Any]:
    code = _code(call, event, wanted)
    answer: dict[str, Any] = {
        "name": event.name,
        "server_uuid": event.server_uuid,
        "status": event.status if code == 200 else "failed",
        "code": code,
    }
    if event.tag is not UNSET:
        answer["tag"] = event.tag
    return answer


def _code(call: Call[ExternalEvents], event: ExternalEvent, wanted: dict[str, set[str]]) -> int:
    """200, 404 (no such server), 422 (it has no host), 400 (a tag is needed), 501 (nothing here can do it)."""
    try:
        found = call.services.cells.find(event.server_uuid)
    except (ServerNotFound, DatabaseUnavailable):
        return 404
    if found.server.host is None:
        return 422
    if event.name not in NETWORK:
        return 501 if event.tag is not UNSET else 400
    # A build brings its ports itself.
    if found.server.vm_state != "building":
        wanted.setdefault(found.cell, set()).add(event.server_uuid)
    return 200
