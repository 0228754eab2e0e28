"""The composed cloud under load, killed at random moments: at the end everything is as asked and nothing is left over.

KILONOVA_CHAOS=long makes it 60 boots and 10 kills; KILONOVA_CHAOS_SEED draws the moments (it is printed).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

import pytest

from tests.chaos import books
from tests.chaos.storm import Storm, wishes
from tests.functional.cloud import Cloud, wait_for

LOG = logging.getLogger(__name__)
LONG = os.environ.get("KILONOVA_CHAOS") == "long"
BOOTS, KILLS = (60, 10) if LONG else (20, 3)
SETTLED = 150.0 if LONG else 90.0


@pytest.mark.timeout(1500)
def test_nothing_is_stuck_and_nothing_leaks(make_cloud: Callable[..., Cloud]) -> None:
    cloud = make_cloud()
    seed = int(os.environ.get("KILONOVA_CHAOS_SEED") or time.time())
    LOG.warning("seed: KILONOVA_CHAOS_SEED=%d", seed)
    storm = Storm(cloud, seed)
    wanted = wishes(cloud, storm.user, storm.draw, count=BOOTS)
    kept = [wish.volume for wish in wanted if wish.volume]
    begun = time.monotonic()
    storm.run(wanted, kills=KILLS)
    calm = time.monotonic()
    LOG.warning("%d boots in %.0f s; kills: %s", BOOTS, calm - begun, "; ".join(storm.kills))
    LOG.warning("starts: %s s", ", ".join(f"{s:.1f}" for s in storm.starts))

    admin = cloud.user("kilonova")
    _settle(cloud, kept)
    LOG.warning("settled after %.1f s", time.monotonic() - calm)
    living = {wish.server for wish in wanted if wish.pause is None}
    found = {server["id"]: server["status"] for server in admin.get("/servers/detail?all_tenants=1")["servers"]}
    assert found == dict.fromkeys(living, "ACTIVE")

    for server in living:
        assert storm.user.call("DELETE", f"/servers/{server}").status == 204
    for server in living:
        storm.user.await_gone(str(server), 120)
    _settle(cloud, kept)


def _settle(cloud: Cloud, kept: list[str]) -> None:
    """Wait until the books agree, or say where they do not."""
    admin = cloud.user("kilonova")
    left: list[str] = []

    def agree() -> bool:
        left[:] = books.differences(books.read(cloud, admin, kept=kept))
        return not left

    try:
        wait_for(agree, what="the books agree", seconds=SETTLED, every=0.5)
    except AssertionError:
        raise AssertionError(f"after {SETTLED:.0f} s:\n" + "\n".join(left)) from None
