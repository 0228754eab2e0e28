"""All flows by name."""

from __future__ import annotations

from typing import Final

from kilonova.base.flow import Flow
from kilonova.flows.build import BUILD
from kilonova.flows.delete import DELETE, DELETE_UNSCHEDULED
from kilonova.flows.power import REBOOT, START, STOP
from kilonova.flows.schedule import SCHEDULE

FLOWS: Final[dict[str, Flow]] = {
    flow.name: flow for flow in (SCHEDULE, BUILD, DELETE, DELETE_UNSCHEDULED, START, STOP, REBOOT)
}
