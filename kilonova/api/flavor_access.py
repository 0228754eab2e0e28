"""Which projects may use a flavor that is not public."""

from __future__ import annotations

from typing import Any

from kilonova.api.call import Call
from kilonova.api.flavors import visible
from kilonova.api.inputs import NoQuery, Short
from kilonova.base.body import Body
from kilonova.base.errors import BadRequest, Conflict, NotFound
from kilonova.base.operation import operation
from kilonova.store import flavors


class Tenant(Body):
    """The project that gets or loses access."""

    tenant: Short


def _access_list(call: Call[Any], flavor_id: str) -> dict[str, Any]:
    with call.services.cells.api.read() as tx:
        projects = flavors.get(tx, flavor_id).projects
    return {"flavor_access": [{"flavor_id": flavor_id, "tenant_id": project} for project in projects]}


@operation(
    "GET",
    "/flavors/{flavor_id}/os-flavor-access",
    rule="os_compute_api:os-flavor-access",
    query=NoQuery,
    refuses={404},
)
def list_flavor_access(call: Call[None]) -> dict[str, Any]:
    """The projects that may use the flavor."""
    call.authorize()
    flavor = visible(call, call.params["flavor_id"])
    if flavor.is_public:
        raise NotFound("Access list not available for public flavors.")
    return _access_list(call, flavor.flavorid)


@operation(
    "POST",
    "/flavors/{flavor_id}/action",
    action="addTenantAccess",
    rule="os_compute_api:os-flavor-access:add_tenant_access",
    body=Tenant,
    refuses={400, 403, 404, 409},
)
def add_tenant_access(call: Call[Tenant]) -> dict[str, Any]:
    """Let a project use the flavor."""
    call.authorize()
    tenant, flavor_id = call.body.tenant, call.params["flavor_id"]
    if not call.services.keystone.project_exists(tenant, token=call.token):
        raise BadRequest(f"Project ID {tenant} is not a valid project.")
    flavor = visible(call, flavor_id)
    if flavor.is_public and call.since("2.7"):
        raise Conflict("Can not add access to a public flavor.")
    call.services.cells.api.write(lambda tx: flavors.add_access(tx, flavor_id, tenant))
    return _access_list(call, flavor_id)


@operation(
    "POST",
    "/flavors/{flavor_id}/action",
    action="removeTenantAccess",
    rule="os_compute_api:os-flavor-access:remove_tenant_access",
    body=Tenant,
    refuses={400, 403, 404},
)
def remove_tenant_access(call: Call[Tenant]) -> dict[str, Any]:
    """Take the flavor from a project; one that exists no more loses it all the same."""
    call.authorize()
    tenant, flavor_id = call.body.tenant, call.params["flavor_id"]
    visible(call, flavor_id)
    call.services.cells.api.write(lambda tx: flavors.remove_access(tx, flavor_id, tenant))
    return _access_list(call, flavor_id)
