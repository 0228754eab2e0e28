"""The quota classes. Only the class "default" has an effect: it stands for projects without limits of their own."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from kilonova.api import quotas
from kilonova.api.call import Call
from kilonova.api.inputs import LaxInt, NoQuery, lax_int
from kilonova.api.quota_sets import Limits
from kilonova.base.body import Body
from kilonova.base.operation import operation
from kilonova.store import quotas as stored

_RULE = "os_compute_api:os-quota-class-sets:"
_NETWORK_LIMIT = lax_int(minimum=-1, until="2.49")
_Number = LaxInt | UnsetType


class ClassLimits(Limits):
    """New limits of a class; those of the network service were taken longer than in quota sets."""

    floating_ips: Annotated[_Number, _NETWORK_LIMIT] = UNSET
    fixed_ips: Annotated[_Number, _NETWORK_LIMIT] = UNSET
    security_groups: Annotated[_Number, _NETWORK_LIMIT] = UNSET
    security_group_rules: Annotated[_Number, _NETWORK_LIMIT] = UNSET


class UpdateQuotaClassSet(Body):
    """PUT /os-quota-class-sets/{class_name}."""

    quota_class_set: ClassLimits


def _limits(call: Call[Any]) -> dict[str, Any]:
    with call.services.cells.api.read() as tx:
        own = stored.get_class(tx, call.params["class_name"])
    found = quotas.defaults(call.options.quota) | own
    return {name: found[name] for name in quotas.names(call.version, classes=True)}


@operation("GET", "/os-quota-class-sets/{class_name}", rule=_RULE + "show", query=NoQuery)
def show_quota_class_set(call: Call[None]) -> dict[str, Any]:
    """The limits of a class."""
    call.authorize()
    return {"quota_class_set": {"id": call.params["class_name"], **_limits(call)}}


@operation("PUT", "/os-quota-class-sets/{class_name}", rule=_RULE + "update", body=UpdateQuotaClassSet, refuses={400})
def update_quota_class_set(call: Call[UpdateQuotaClassSet]) -> dict[str, Any]:
    """Set limits of a class."""
    call.authorize()
    new = call.body.quota_class_set.given()
    call.services.cells.api.write(lambda tx: stored.put_class(tx, call.params["class_name"], new))
    return {"quota_class_set": _limits(call)}
