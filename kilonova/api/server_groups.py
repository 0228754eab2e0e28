"""Server groups: servers that shall run together, or apart."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from kilonova.api.call import Call
from kilonova.api.inputs import MAX_INT, LaxInt, Limit, NoQuery, Short, lax_int, name_of
from kilonova.api.moments import now
from kilonova.api.quotas import limit_of
from kilonova.base.body import Body, Query, wire
from kilonova.base.errors import BadRequest, Forbidden
from kilonova.base.operation import operation
from kilonova.base.view import Page, View, field
from kilonova.store import instance_mappings, server_groups
from kilonova.store.server_groups import ServerGroup
from kilonova.store.session import Tx

_RULE = "os_compute_api:os-server-groups:"

Hard = Literal["anti-affinity", "affinity"]
Any4 = Literal["anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity"]
_One = Meta(min_length=1, max_length=1)


class Rules(Body):
    """Further rules of a policy."""

    max_server_per_host: Annotated[LaxInt | UnsetType, lax_int(minimum=1)] = UNSET


class NewServerGroup(Body):
    """A group to be made. The policy is one in a list before 2.64; soft ones came at 2.15."""

    name: Annotated[Short, wire(check=name_of)]
    hard: Annotated[Annotated[list[Hard], _One] | UnsetType, wire("policies", until="2.14")]
    policies: Annotated[Annotated[list[Any4], _One] | UnsetType, wire("policies", since="2.15", until="2.63")]
    policy: Annotated[Any4 | UnsetType, wire(since="2.64")]
    rules: Annotated[Rules | UnsetType, wire(since="2.64")] = UNSET

    @property
    def chosen(self) -> str:
        """The policy, however it was given."""
        if self.policy is not UNSET:
            return str(self.policy)
        return str((self.hard or self.policies or [""])[0])


class CreateServerGroup(Body):
    """POST /os-server-groups."""

    server_group: NewServerGroup


class GroupsQuery(Query):
    """The query of the list. ``all_projects`` counts by being there at all."""

    strict_since: ClassVar[str | None] = "2.75"

    all_projects: str | None = None
    limit: Limit | None = None
    offset: Limit = 0


def _living(page: Page[ServerGroup]) -> set[str]:
    """The members of the page's groups that are not deleted."""
    members = {uuid for group in page.objects for uuid in group.members}
    with page.env.services.cells.api.read() as tx:
        mappings = {member: instance_mappings.get(tx, member) for member in members}
    return {uuid for uuid, mapping in mappings.items() if mapping is not None and not mapping.queued_for_delete}


def _members(group: ServerGroup, page: Page[ServerGroup]) -> list[str]:
    living = page.load(_living)
    return [member for member in group.members if member in living]


def _rules(group: ServerGroup) -> dict[str, int]:
    return {key: int(value) for key, value in (group.rules or {}).items()}


GROUP = View(
    field("id", lambda group, page: group.uuid),
    field("name", lambda group, page: group.name),
    field("policies", lambda group, page: [group.policy] if group.policy else [], until="2.63"),
    field("metadata", lambda group, page: {}, until="2.63"),
    field("policy", lambda group, page: group.policy, since="2.64"),
    field("rules", lambda group, page: _rules(group), since="2.64"),
    field("members", _members),
    field("project_id", lambda group, page: group.project_id, since="2.13"),
    field("user_id", lambda group, page: group.user_id, since="2.13"),
)


def _render(call: Call[Any], groups: list[ServerGroup]) -> list[dict[str, Any]]:
    return GROUP.render(Page(groups, version=call.version, env=call))


@operation("GET", "/os-server-groups", rule=_RULE + "index", query=GroupsQuery)
def list_server_groups(call: Call[None]) -> dict[str, Any]:
    """The groups of the caller's project, or of all."""
    query: GroupsQuery = call.query
    call.authorize()
    project_id: str | None = call.context.project_id
    if query.all_projects is not None and call.context.is_admin:
        call.authorize(rule=_RULE + "index:all_projects")
        project_id = None
    most = call.options.api.max_limit
    size = min(query.limit or most, most)
    with call.services.cells.api.read() as tx:
        groups = server_groups.listing(tx, project_id, limit=size, offset=min(query.offset, MAX_INT))
    return {"server_groups": _render(call, groups)}


def _find(call: Call[Any]) -> ServerGroup:
    with call.services.cells.api.read() as tx:
        group = server_groups.get(tx, call.params["group_id"])
    call.authorize({"project_id": group.project_id})
    return group


@operation("GET", "/os-server-groups/{group_id}", rule=_RULE + "show", query=NoQuery, refuses={404})
def show_server_group(call: Call[None]) -> dict[str, Any]:
    """One group."""
    return {"server_group": _render(call, [_find(call)])[0]}


@operation("POST", "/os-server-groups", rule=_RULE + "create", body=CreateServerGroup, refuses={400, 403, 409})
def create_server_group(call: Call[CreateServerGroup]) -> dict[str, Any]:
    """Make a group in the caller's project."""
    call.authorize()
    asked = call.body.server_group
    rules: dict[str, str] = {}
    if asked.rules is not UNSET and asked.rules.max_server_per_host is not UNSET:
        rules["max_server_per_host"] = str(asked.rules.max_server_per_host)
    if rules and asked.chosen != "anti-affinity":
        raise BadRequest("Only anti-affinity policy supports rules.")
    group = ServerGroup(
        uuid=str(uuid.uuid4()),
        name=asked.name,
        policy=asked.chosen,
        rules=rules,
        project_id=call.context.project_id,
        user_id=call.context.user_id,
        created_at=now(),
    )
    limit = limit_of(call, "server_groups")

    def insert(tx: Tx) -> ServerGroup:
        if 0 <= limit <= server_groups.count(tx, group.project_id):
            raise Forbidden("Quota exceeded, too many server groups.")
        return server_groups.insert(tx, group)

    return {"server_group": _render(call, [call.services.cells.api.write(insert)])[0]}


@operation("DELETE", "/os-server-groups/{group_id}", rule=_RULE + "delete", success=204, refuses={404})
def delete_server_group(call: Call[None]) -> None:
    """Delete a group; its servers stay."""
    group = _find(call)
    call.services.cells.api.write(lambda tx: server_groups.delete(tx, group.uuid))
