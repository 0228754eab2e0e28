"""Key pairs of users."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, UnsetType

from kilonova.api.call import Answer, Call
from kilonova.api.inputs import Limit, Short, name_of
from kilonova.api.moments import micro, now
from kilonova.api.paging import page_size, with_links
from kilonova.api.quotas import limit_of
from kilonova.base.body import Body, Query, wire
from kilonova.base.errors import BadRequest, Forbidden, KeyPairNotFound
from kilonova.base.operation import operation
from kilonova.base.view import Page, View, field
from kilonova.core import keypair
from kilonova.store import keypairs
from kilonova.store.keypairs import KeyPair
from kilonova.store.session import Tx

_RULE = "os_compute_api:os-keypairs:"


def _name_of(pattern: str) -> Callable[[str], str]:
    fits = re.compile(pattern)

    def check(value: str) -> str:
        if not fits.fullmatch(name_of(value)):
            raise ValueError(f"{value!r} does not match {pattern!r}")
        return value

    return check


class NewKeyPair(Body):
    """A key pair to be imported, or generated where no public key is given."""

    name: Annotated[Short | UnsetType, wire(until="2.91", check=_name_of(r"[_\- a-zA-Z0-9]+"))]
    wide_name: Annotated[Short | UnsetType, wire("name", since="2.92", check=_name_of(r"[_\-@. a-zA-Z0-9]+"))]
    public_key: Annotated[str | UnsetType, wire(required_since="2.92")] = UNSET
    type: Annotated[Literal["ssh", "x509"], wire(since="2.2")] = "ssh"
    user_id: Annotated[str | UnsetType, wire(since="2.10")] = UNSET


class CreateKeyPair(Body):
    """POST /os-keypairs."""

    keypair: NewKeyPair


class OwnerQuery(Query):
    """Whose key pair is meant, where not the caller's own."""

    strict_since: ClassVar[str | None] = "2.75"

    user_id: Annotated[str | None, wire(since="2.10")] = None


class ListQuery(OwnerQuery):
    """The query of the list."""

    limit: Annotated[Limit | None, wire(since="2.35")] = None
    marker: Annotated[str | None, wire(since="2.35")] = None


KEYPAIR = View(
    field("name", lambda pair, page: pair.name),
    field("public_key", lambda pair, page: pair.public_key),
    field("fingerprint", lambda pair, page: pair.fingerprint),
    field("type", lambda pair, page: pair.type, since="2.2"),
    field("user_id", lambda pair, page: pair.user_id, only={"create", "show"}),
    field("id", lambda pair, page: pair.id, only={"show"}),
    field("created_at", lambda pair, page: micro(pair.created_at), only={"show"}),
    field("updated_at", lambda pair, page: None, only={"show"}),
    field("deleted", lambda pair, page: False, only={"show"}),
    field("deleted_at", lambda pair, page: None, only={"show"}),
)


def _render(call: Call[Any], pairs: list[KeyPair], *, occasion: str) -> list[dict[str, Any]]:
    return KEYPAIR.render(Page(pairs, version=call.version, env=call), occasion=occasion, allows=call.allows)


def _owner(call: Call[Any], asked: str | None) -> str:
    """The user whose pairs are meant; PolicyRefused unless the caller may act for them."""
    owner = asked or call.context.user_id
    call.authorize({"user_id": owner, "project_id": call.context.project_id})
    return owner


@operation("GET", "/os-keypairs", rule=_RULE + "index", query=ListQuery, refuses={400})
def list_keypairs(call: Call[None]) -> dict[str, Any]:
    """The key pairs of a user, by name."""
    query: ListQuery = call.query
    owner = _owner(call, query.user_id)
    size = page_size(call, query.limit)
    found: list[KeyPair] = []
    with call.services.cells.api.read() as tx:
        if query.marker is not None:
            _require_marker(tx, owner, query.marker)
        if size:
            limit = size if call.since("2.35") else None
            found = keypairs.listing(tx, owner, limit=limit, marker=query.marker)
    body = {"keypairs": [{"keypair": pair} for pair in _render(call, found, occasion="list")]}
    if not call.since("2.35"):
        return body
    markers = [pair.name for pair in found]
    return with_links(call, body, "keypairs", collection="os-keypairs", size=size, markers=markers)


def _require_marker(tx: Tx, owner: str, marker: str) -> None:
    try:
        keypairs.get(tx, owner, marker)
    except KeyPairNotFound:
        raise BadRequest(f"marker [{marker}] not found") from None


@operation("GET", "/os-keypairs/{name}", rule=_RULE + "show", query=OwnerQuery, refuses={404})
def show_keypair(call: Call[None]) -> dict[str, Any]:
    """One key pair, without its private key, which is not kept."""
    owner = _owner(call, call.query.user_id)
    with call.services.cells.api.read() as tx:
        pair = keypairs.get(tx, owner, call.params["name"])
    return {"keypair": _render(call, [pair], occasion="show")[0]}


@operation("POST", "/os-keypairs", rule=_RULE + "create", until="2.1", body=CreateKeyPair, refuses={400, 403, 409})
def create_keypair_at_first(call: Call[CreateKeyPair]) -> dict[str, Any]:
    """Import or generate a key pair."""
    return _create(call)


@operation(
    "POST",
    "/os-keypairs",
    rule=_RULE + "create",
    since="2.2",
    body=CreateKeyPair,
    success=201,
    refuses={400, 403, 409},
)
def create_keypair(call: Call[CreateKeyPair]) -> dict[str, Any]:
    """Import or (before 2.92) generate a key pair."""
    return _create(call)


def _create(call: Call[CreateKeyPair]) -> dict[str, Any]:
    asked = call.body.keypair
    owner = _owner(call, asked.user_id or None)
    name = str(asked.wide_name if asked.name is UNSET else asked.name)
    public, fingerprint, private = _material(asked, owner)
    pair = KeyPair(
        user_id=owner, name=name, type=asked.type, public_key=public, fingerprint=fingerprint, created_at=now()
    )
    limit = limit_of(call, "key_pairs", user_id=owner)

    def insert(tx: Tx) -> KeyPair:
        if 0 <= limit <= keypairs.count(tx, owner):
            raise Forbidden("Quota exceeded, too many key pairs.")
        return keypairs.insert(tx, pair)

    made = call.services.cells.api.write(insert)
    body = _render(call, [made], occasion="create")[0]
    if private is not None:
        body["private_key"] = private
    return {"keypair": body}


def _material(asked: NewKeyPair, owner: str) -> tuple[str, str, str | None]:
    """Public key, fingerprint, and the private key of a generated pair."""
    if asked.public_key is UNSET:
        made = keypair.generate_x509(owner) if asked.type == "x509" else keypair.generate_ssh()
        return made.public_key, made.fingerprint, made.private_key
    of = keypair.fingerprint_of_x509 if asked.type == "x509" else keypair.fingerprint_of_ssh
    try:
        return asked.public_key, of(asked.public_key), None
    except ValueError as error:
        raise BadRequest(f"Keypair data is invalid: {error}") from None


@operation(
    "DELETE", "/os-keypairs/{name}", rule=_RULE + "delete", until="2.1", query=OwnerQuery, success=202, refuses={404}
)
def delete_keypair_at_first(call: Call[None]) -> Answer:
    """Delete a key pair."""
    return _delete(call, 202)


@operation(
    "DELETE", "/os-keypairs/{name}", rule=_RULE + "delete", since="2.2", query=OwnerQuery, success=204, refuses={404}
)
def delete_keypair(call: Call[None]) -> Answer:
    """Delete a key pair; servers keep the key they were given."""
    return _delete(call, 204)


def _delete(call: Call[None], status: int) -> Answer:
    query = call.query if isinstance(call.query, OwnerQuery) else OwnerQuery.read(dict(call.raw_query), call.version)
    owner = _owner(call, query.user_id)
    call.services.cells.api.write(lambda tx: keypairs.delete(tx, owner, call.params["name"]))
    return Answer(status=status)
