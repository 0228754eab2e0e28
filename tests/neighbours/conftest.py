"""What every test of this folder needs: the neighbours in their own venv."""

from __future__ import annotations

import pytest

from tests.services import need_neighbours


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    need_neighbours()
