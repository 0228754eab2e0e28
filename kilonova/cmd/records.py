"""Keeps a program's row in a services table: joins, beats, and says when it leaves."""

from __future__ import annotations

from typing import Protocol

from kilonova.base import log
from kilonova.base.errors import Fault
from kilonova.base.rpc import client
from kilonova.base.service import Service
from kilonova.cmd.site import Site
from kilonova.contracts import GENERATION
from kilonova.contracts.conductor import Beat, Conductor, Joined
from kilonova.core.host import Node

LOG = log.of(__name__)

ANSWER_SECONDS = 10.0


class Keeper(Protocol):
    """Who keeps the records: a part of the contract ``Conductor``."""

    def join(self, *, host: str, binary: str, version: int, node: Node | None) -> Joined: ...

    def beat(self, *, host: str, binary: str) -> Beat: ...

    def leave(self, *, host: str, binary: str) -> None: ...


def keep_record(site: Site, service: Service, binary: str, *, tell: Keeper | None = None) -> None:
    """While ``service`` runs. ``tell``: the conductor that keeps the record (None: the super conductor, by the bus).

    Programs of no cell stand in cell0's table, a cell's conductor in its cell's.
    """
    answers: Keeper = tell or client(Conductor, site.buses.api, timeout=ANSWER_SECONDS)
    host = site.process.host
    silent = False

    def beat() -> None:
        nonlocal silent
        try:
            if not answers.beat(host=host, binary=binary).known:
                answers.join(host=host, binary=binary, version=GENERATION, node=None)
        except Fault as error:
            if not silent:
                LOG.warning("the heartbeat of %s is not heard: %s", binary, error.message)
            silent = True
            return
        if silent:
            LOG.info("the heartbeat of %s is heard again", binary)
        silent = False

    def leave() -> None:
        try:
            answers.leave(host=host, binary=binary)
        except Fault as error:
            LOG.info("%s could not say that it leaves: %s", binary, error.message)

    service.every(site.heartbeats.report_interval, beat, name=f"{binary} heartbeat", first=0.5)
    service.on_stop(leave)
