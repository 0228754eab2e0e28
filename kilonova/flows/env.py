"""What the steps that a conductor runs may use."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from typing import Final

from kilonova.base.engine import utcnow
from kilonova.base.flow import Run
from kilonova.clients.cinder import Cinder
from kilonova.clients.neutron import Neutron
from kilonova.clients.placement import Placement
from kilonova.contracts.compute import Compute
from kilonova.contracts.scheduler import Scheduler
from kilonova.store.cells import Cells
from kilonova.store.session import Database

PERSIST: Final = 1000
"""Tries of a step that nothing but the world's recovery can mend: pauses grow to a minute, so this is most of a day."""


@dataclasses.dataclass(frozen=True)
class Env:
    """The world of one run. ``where`` is the uuid of the cell whose database ``db`` is, "" for the API database.

    ``wake(run, where)`` has a run driven, now or soon; ``compute(cell, host)`` reaches a host.
    """

    run: Run
    where: str
    db: Database
    cells: Cells
    placement: Placement
    neutron: Neutron
    cinder: Cinder
    scheduler: Scheduler
    compute: Callable[[str, str], Compute]
    wake: Callable[[str, str], None]
    max_attempts: int = 3
    instances_limit: Callable[[str], None] = lambda project_id: None
    now: Callable[[], datetime.datetime] = utcnow
