"""Texts that a database cannot hold are the asker's fault, and said so."""

from __future__ import annotations

import pytest

from kilonova.base.errors import BadRequest, FlavorNotFound
from kilonova.store import flavors
from kilonova.store.session import Database


def test_nul_in_a_text(api: Database, kind: str) -> None:
    expected = BadRequest if kind == "postgresql" else FlavorNotFound
    with pytest.raises(expected), api.read() as tx:
        flavors.get(tx, "a\x00b")
    with pytest.raises(expected):
        api.write(lambda tx: flavors.delete(tx, "a\x00b"))
