"""The quota sets of projects and of users in them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, UnsetType

from kilonova.api import quotas
from kilonova.api.call import Answer, Call
from kilonova.api.inputs import LaxBool, LaxInt, as_bool, lax_int
from kilonova.base.body import Body, Query, wire
from kilonova.base.errors import BadRequest
from kilonova.base.operation import operation
from kilonova.store import quotas as stored
from kilonova.store.session import Tx

_RULE = "os_compute_api:os-quota-sets:"

_LIMIT = lax_int(minimum=-1)
_NETWORK_LIMIT = lax_int(minimum=-1, until="2.35")
_FILE_LIMIT = lax_int(minimum=-1, until="2.56")
_Number = LaxInt | UnsetType


class Limits(Body):
    """New limits by resource; -1 is no limit."""

    instances: Annotated[_Number, _LIMIT] = UNSET
    cores: Annotated[_Number, _LIMIT] = UNSET
    ram: Annotated[_Number, _LIMIT] = UNSET
    metadata_items: Annotated[_Number, _LIMIT] = UNSET
    key_pairs: Annotated[_Number, _LIMIT] = UNSET
    server_groups: Annotated[_Number, _LIMIT] = UNSET
    server_group_members: Annotated[_Number, _LIMIT] = UNSET
    injected_files: Annotated[_Number, _FILE_LIMIT] = UNSET
    injected_file_content_bytes: Annotated[_Number, _FILE_LIMIT] = UNSET
    injected_file_path_bytes: Annotated[_Number, _FILE_LIMIT] = UNSET
    floating_ips: Annotated[_Number, _NETWORK_LIMIT] = UNSET
    fixed_ips: Annotated[_Number, _NETWORK_LIMIT] = UNSET
    security_groups: Annotated[_Number, _NETWORK_LIMIT] = UNSET
    security_group_rules: Annotated[_Number, _NETWORK_LIMIT] = UNSET

    def given(self) -> dict[str, int]:
        """The limits in it that count, by resource."""
        values = {name: getattr(self, name) for name in quotas.LIMITED}
        return {name: int(value) for name, value in values.items() if value is not UNSET}


class ForcedLimits(Limits):
    """Limits, and whether they may be below what is used."""

    force: Annotated[LaxBool, wire(check=as_bool)] = False


class UpdateQuotaSet(Body):
    """PUT /os-quota-sets/{project_id}."""

    quota_set: ForcedLimits


class UserQuery(Query):
    """The user in the project who is meant, where not all of it."""

    strict_since: ClassVar[str | None] = "2.75"

    user_id: str | None = None


def _project(call: Call[Any]) -> str:
    """The project in the path: PolicyRefused, or BadRequest where there is no such project."""
    project_id = call.params["quota_project_id"]
    call.authorize({"project_id": project_id})
    if not call.services.keystone.project_exists(project_id, token=call.token):
        raise BadRequest(f"Project ID {project_id} is not a valid project.")
    return project_id


def _user(call: Call[Any]) -> str | None:
    query = call.query if isinstance(call.query, UserQuery) else UserQuery.read(dict(call.raw_query), call.version)
    return query.user_id or None


def _shown(call: Call[Any], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in quotas.names(call.version)}


@operation("GET", "/os-quota-sets/{quota_project_id}", rule=_RULE + "show", query=UserQuery, refuses={400})
def show_quota_set(call: Call[None]) -> dict[str, Any]:
    """The limits of a project, or of a user in it."""
    project_id = _project(call)
    limits = quotas.limits(call, project_id, user_id=_user(call))
    return {"quota_set": {"id": project_id, **_shown(call, dict(limits))}}


@operation("GET", "/os-quota-sets/{quota_project_id}/detail", rule=_RULE + "detail", query=UserQuery, refuses={400})
def show_quota_set_in_detail(call: Call[None]) -> dict[str, Any]:
    """The limits of a project with what it uses of each."""
    project_id = _project(call)
    limits = quotas.limits(call, project_id, user_id=_user(call))
    used = quotas.usage(call, project_id, user_id=_user(call))
    detail = {name: {"in_use": used[name], "limit": limit, "reserved": 0} for name, limit in limits.items()}
    return {"quota_set": {"id": project_id, **_shown(call, dict(detail))}}


@operation("GET", "/os-quota-sets/{quota_project_id}/defaults", rule=_RULE + "defaults", refuses={400})
def show_default_quota_set(call: Call[None]) -> dict[str, Any]:
    """The limits of a project that has none of its own."""
    project_id = _project(call)
    return {"quota_set": {"id": project_id, **_shown(call, dict(quotas.class_limits(call)))}}


@operation(
    "PUT",
    "/os-quota-sets/{quota_project_id}",
    rule=_RULE + "update",
    body=UpdateQuotaSet,
    query=UserQuery,
    refuses={400},
)
def update_quota_set(call: Call[UpdateQuotaSet]) -> dict[str, Any]:
    """Set limits. Without force none may be below what is used, nor a user's above the project's."""
    project_id, user_id = _project(call), _user(call)
    asked = call.body.quota_set
    new = asked.given()
    if not asked.force:
        _require_sensible(call, new, project_id=project_id, user_id=user_id)

    def put(tx: Tx) -> None:
        if user_id is None:
            stored.put_project(tx, project_id, new)
        else:
            stored.put_user(tx, project_id, user_id, new)

    call.services.cells.api.write(put)
    return {"quota_set": _shown(call, dict(quotas.limits(call, project_id, user_id=user_id)))}


def _require_sensible(call: Call[Any], new: dict[str, int], *, project_id: str, user_id: str | None) -> None:
    used = quotas.usage(call, project_id, user_id=user_id)
    most = quotas.limits(call, project_id) if user_id is not None else {}
    for name, limit in new.items():
        highest = most.get(name, -1)
        if limit != -1 and limit < used[name]:
            raise BadRequest(
                f"Quota limit {limit} for {name} must be greater than or equal to already used and reserved "
                f"{used[name]}."
            )
        if highest != -1 and (limit > highest or limit == -1):
            raise BadRequest(f"Quota limit {limit} for {name} must be less than or equal to {highest}.")


@operation("DELETE", "/os-quota-sets/{quota_project_id}", rule=_RULE + "delete", query=UserQuery, success=202)
def delete_quota_set(call: Call[None]) -> Answer:
    """Forget the limits of a project and of all users in it, or those of one user."""
    project_id, user_id = call.params["quota_project_id"], _user(call)
    call.authorize({"project_id": project_id})

    def delete(tx: Tx) -> None:
        if user_id is None:
            stored.delete_project(tx, project_id)
        else:
            stored.delete_user(tx, project_id, user_id)

    call.services.cells.api.write(delete)
    return Answer(status=202)
