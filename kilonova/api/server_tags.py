"""The tags of a server."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from kilonova.api import formats
from kilonova.api.call import Answer, Call
from kilonova.api.servers import lookup
from kilonova.api.servers.bodies import Tag, tag_of
from kilonova.api.servers.lookup import Located
from kilonova.api.versions_document import AnyParameters
from kilonova.base.body import Body, wire
from kilonova.base.errors import BadRequest, NotFound
from kilonova.base.operation import operation
from kilonova.core import states
from kilonova.core.states import Action
from kilonova.store import servers
from kilonova.store.session import Database, Tx

_PATH = "/servers/{server_id}/tags"
_ONE = "/servers/{server_id}/tags/{tag}"
_RULE = "os_compute_api:os-server-tags:"
MOST = 50


class Tags(Body):
    """All tags of a request."""

    tags: Annotated[Annotated[list[Tag], Meta(max_length=MOST)], wire(check=formats.each(tag_of))]


def _writable(call: Call[Any], action: Action) -> tuple[Located, Database]:
    """The server, in a state that allows the change, and its cell's database."""
    located = lookup.find(call)
    states.check(action, located.server)
    return located, call.services.cells.database(located.cell)


@operation("GET", _PATH, rule=_RULE + "index", since="2.26", query=AnyParameters, refuses={404})
def list_tags(call: Call[None]) -> dict[str, Any]:
    """All tags, sorted."""
    return {"tags": lookup.find(call).server.tags}


@operation("GET", _ONE, rule=_RULE + "show", since="2.26", query=AnyParameters, success=204, refuses={404})
def show_tag(call: Call[None]) -> None:
    """Whether the server has a tag."""
    server = lookup.find(call).server
    if call.params["tag"] not in server.tags:
        raise NotFound(f"Server {server.uuid} has no tag '{call.params['tag']}'")


@operation("PUT", _PATH, rule=_RULE + "update_all", since="2.26", body=Tags, refuses={400, 404, 409})
def replace_tags(call: Call[Tags]) -> dict[str, Any]:
    """Make these the only tags."""
    located, database = _writable(call, states.UPDATE_TAGS)
    uuid = located.server.uuid

    def write(tx: Tx) -> list[str]:
        servers.replace_tags(tx, uuid, call.body.tags)
        return servers.get_tags(tx, uuid)

    return {"tags": database.write(write)}


@operation("PUT", _ONE, rule=_RULE + "update", since="2.26", success=201, refuses={400, 404, 409})
def add_tag(call: Call[None]) -> Answer:
    """Add a tag."""
    located, database = _writable(call, states.UPDATE_TAG)
    tag, uuid = call.params["tag"], located.server.uuid
    try:
        tag_of(tag)
    except ValueError as error:
        raise BadRequest(f"Tag '{tag}' is invalid. {error}") from None
    if len(tag) > 60:
        raise BadRequest(f"Tag '{tag}' is invalid. It must be a string without characters '/' and ','. "
                         "Maximum length of tag is 60")  # fmt: skip

    def write(tx: Tx) -> bool:
        known = servers.get_tags(tx, uuid)
        if tag in known:
            return False
        if len(known) >= MOST:
            raise BadRequest(f"The number of tags exceeded the per-server limit {MOST}")
        return servers.add_tag(tx, uuid, tag)

    if not database.write(write):
        return Answer(status=204)
    return Answer(status=201, headers={"Location": f"{call.link_base}/servers/{uuid}/tags/{quote(tag)}"})


@operation("DELETE", _ONE, rule=_RULE + "delete", since="2.26", success=204, refuses={404, 409})
def delete_tag(call: Call[None]) -> None:
    """Remove a tag."""
    located, database = _writable(call, states.DELETE_TAG)
    tag, uuid = call.params["tag"], located.server.uuid
    if not database.write(lambda tx: servers.delete_tag(tx, uuid, tag)):
        raise NotFound(f"Server {uuid} has no tag '{tag}'")


@operation("DELETE", _PATH, rule=_RULE + "delete_all", since="2.26", success=204, refuses={404, 409})
def delete_tags(call: Call[None]) -> None:
    """Remove all tags."""
    located, database = _writable(call, states.DELETE_TAGS)
    database.write(lambda tx: servers.replace_tags(tx, located.server.uuid, []))
