"""The tests of the store that need no server: those of tests/db, on SQLite alone."""

from __future__ import annotations

import pytest

from tests.db.conftest import api, api_cleared, api_shared, cell, cell_cleared, cell_shared, make_url

__all__ = ["api", "api_cleared", "api_shared", "cell", "cell_cleared", "cell_shared", "make_url"]


@pytest.fixture(scope="session")
def kind() -> str:
    return "sqlite"
