"""The public keys of users."""

from __future__ import annotations

import datetime

import msgspec
from sqlalchemy import delete as delete_rows
from sqlalchemy import func, select
from sqlalchemy import insert as insert_rows
from sqlalchemy.exc import IntegrityError

from kilonova.base.errors import BadRequest, Conflict, KeyPairNotFound
from kilonova.store.schema_api import key_pairs
from kilonova.store.session import AnyRow, Tx

_C = key_pairs.c


class KeyPair(msgspec.Struct, kw_only=True):
    """A public key; ``type`` is ssh or x509."""

    user_id: str
    name: str
    fingerprint: str
    public_key: str
    created_at: datetime.datetime
    type: str = "ssh"
    id: int = 0


def insert(tx: Tx, pair: KeyPair) -> KeyPair:
    """Enter a key; the answer has its ``id``. Conflict when the user has one of that name."""
    values = msgspec.structs.asdict(pair)
    del values["id"]
    taken = Conflict(f"Key pair '{pair.name}' already exists.")
    if tx.scalar(select(_C.id).where(_C.user_id == pair.user_id, _C.name == pair.name)) is not None:
        raise taken
    try:
        key = tx.execute(insert_rows(key_pairs), values).inserted_primary_key
    except IntegrityError as error:
        raise taken from error
    assert key is not None
    return msgspec.structs.replace(pair, id=key[0])


def get(tx: Tx, user_id: str, name: str) -> KeyPair:
    """The key; KeyPairNotFound."""
    row = tx.row(select(key_pairs).where(_C.user_id == user_id, _C.name == name))
    if row is None:
        raise KeyPairNotFound(name=name, user=user_id)
    return _record(row)


def delete(tx: Tx, user_id: str, name: str) -> None:
    """Remove the key; KeyPairNotFound."""
    if tx.changes(delete_rows(key_pairs).where(_C.user_id == user_id, _C.name == name)) == 0:
        raise KeyPairNotFound(name=name, user=user_id)


def listing(tx: Tx, user_id: str, *, limit: int | None = None, marker: str | None = None) -> list[KeyPair]:
    """The keys of a user by name. BadRequest for a ``marker`` (a name) that is not there."""
    query = select(key_pairs).where(_C.user_id == user_id).order_by(_C.name)
    if marker is not None:
        if tx.scalar(select(_C.id).where(_C.user_id == user_id, _C.name == marker)) is None:
            raise BadRequest(f"marker [{marker}] not found")
        query = query.where(_C.name > marker)
    return [_record(row) for row in tx.rows(query if limit is None else query.limit(limit))]


def count(tx: Tx, user_id: str) -> int:
    """How many keys a user has."""
    return int(tx.scalar(select(func.count()).where(_C.user_id == user_id)))


def _record(row: AnyRow) -> KeyPair:
    return KeyPair(**{name: getattr(row, name) for name in KeyPair.__struct_fields__})
