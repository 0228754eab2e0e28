"""Extra specs of flavors: what else a server of this flavor asks of its host."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from kilonova.api.call import Call
from kilonova.api.flavors import visible
from kilonova.api.inputs import NoQuery
from kilonova.base.body import Body, wire
from kilonova.base.errors import BadRequest, NotFound, ValidationFailed
from kilonova.base.operation import operation
from kilonova.base.versions import Version
from kilonova.core import extra_specs
from kilonova.store import flavors

Specs = dict[str, str | int | float]

_KEY = re.compile(r"[a-zA-Z0-9\-_:. ]{1,255}")


def _fits(specs: Specs) -> Specs:
    for key, value in specs.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} does not match {_KEY.pattern!r}")
        if isinstance(value, str) and len(value) > 255:
            raise ValueError(f"the value of {key!r} is longer than 255 characters")
    return specs


class NewExtraSpecs(Body):
    """POST /flavors/{flavor_id}/os-extra_specs."""

    extra_specs: Annotated[Specs, wire(check=_fits)]


class OneExtraSpec(Body):
    """PUT /flavors/{flavor_id}/os-extra_specs/{key}: an object whose only key is the spec's."""

    spec: Specs

    @classmethod
    def decode(cls, raw: object, version: Version, *, lax: bool = False) -> Self:
        """The body from JSON values already parsed; BadRequest."""
        if not isinstance(raw, dict):
            raise BadRequest(f"{raw!r} is not of type 'object'")
        if len(raw) != 1:
            raise BadRequest(f"{raw!r} has not exactly one property")
        for key, value in raw.items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValidationFailed(field=key, value=repr(value), reason="It is not of type 'string', 'number'")
        try:
            return cls(spec=_fits(raw))
        except ValueError as error:
            raise BadRequest(str(error)) from None

    @classmethod
    def json_schema(cls, version: Version) -> dict[str, Any]:
        """JSON Schema of the body."""
        value = {"type": ["string", "number"], "maxLength": 255}
        return {
            "type": "object",
            "patternProperties": {f"^{_KEY.pattern}$": value},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }


def _checked(call: Call[Any], specs: Specs) -> dict[str, str]:
    texts = {key: str(value) for key, value in specs.items()}
    if call.since("2.86"):
        for key, value in texts.items():
            try:
                extra_specs.validate(key, value)
            except ValueError as error:
                raise BadRequest(f"Validation failed; {error}") from None
    return texts


@operation(
    "GET",
    "/flavors/{flavor_id}/os-extra_specs",
    rule="os_compute_api:os-flavor-extra-specs:index",
    query=NoQuery,
    refuses={404},
)
def list_extra_specs(call: Call[None]) -> dict[str, Any]:
    """All extra specs of a flavor."""
    call.authorize()
    return {"extra_specs": visible(call, call.params["flavor_id"]).extra_specs}


@operation(
    "POST",
    "/flavors/{flavor_id}/os-extra_specs",
    rule="os_compute_api:os-flavor-extra-specs:create",
    body=NewExtraSpecs,
    refuses={400, 404, 409},
)
def create_extra_specs(call: Call[NewExtraSpecs]) -> dict[str, Any]:
    """Add extra specs, or give new values to present ones."""
    call.authorize()
    texts = _checked(call, call.body.extra_specs)
    flavor = visible(call, call.params["flavor_id"])
    call.services.cells.api.write(lambda tx: flavors.put_specs(tx, flavor.flavorid, texts))
    return {"extra_specs": call.body.extra_specs}


@operation(
    "GET",
    "/flavors/{flavor_id}/os-extra_specs/{key}",
    rule="os_compute_api:os-flavor-extra-specs:show",
    query=NoQuery,
    refuses={404},
)
def show_extra_spec(call: Call[None]) -> dict[str, Any]:
    """One extra spec."""
    call.authorize()
    key = call.params["key"]
    flavor = visible(call, call.params["flavor_id"])
    if key not in flavor.extra_specs:
        raise _lacks(flavor.flavorid, key)
    return {key: flavor.extra_specs[key]}


def _lacks(flavor_id: str, key: str) -> NotFound:
    return NotFound(f"Flavor {flavor_id} has no extra specs with key {key}.")


@operation(
    "PUT",
    "/flavors/{flavor_id}/os-extra_specs/{key}",
    rule="os_compute_api:os-flavor-extra-specs:update",
    body=OneExtraSpec,
    refuses={400, 404, 409},
)
def update_extra_spec(call: Call[OneExtraSpec]) -> dict[str, Any]:
    """Set one extra spec."""
    call.authorize()
    texts = _checked(call, call.body.spec)
    if call.params["key"] not in texts:
        raise BadRequest("Request body and URI mismatch")
    flavor = visible(call, call.params["flavor_id"])
    call.services.cells.api.write(lambda tx: flavors.put_specs(tx, flavor.flavorid, texts))
    return dict(call.body.spec)


@operation(
    "DELETE",
    "/flavors/{flavor_id}/os-extra_specs/{key}",
    rule="os_compute_api:os-flavor-extra-specs:delete",
    refuses={404},
)
def delete_extra_spec(call: Call[None]) -> None:
    """Remove one extra spec."""
    call.authorize()
    key = call.params["key"]
    flavor = visible(call, call.params["flavor_id"])
    if key not in flavor.extra_specs:
        raise _lacks(flavor.flavorid, key)
    call.services.cells.api.write(lambda tx: flavors.delete_spec(tx, flavor.flavorid, key))
