"""The engine's way to the hosts of a cell: messages on the cell's bus."""

from __future__ import annotations

from collections.abc import Callable

from kilonova.base.flow import Work
from kilonova.base.rpc import Bus, client
from kilonova.conductor.liveness import Liveness
from kilonova.contracts.compute import Compute


class CellHosts:
    """Implements the engine's ``Hosts``. ``cap``: the contract's version that all hosts of the cell know."""

    def __init__(self, bus: Bus, liveness: Liveness, *, cap: Callable[[], str | None] = lambda: None) -> None:
        self._bus, self._liveness, self._cap = bus, liveness, cap

    def send(self, host: str, work: Work) -> None:
        """Cast the work."""
        client(Compute, self._bus, host=host, cap=self._cap()).perform(work=work)

    def is_up(self, host: str) -> bool:
        """By heartbeat."""
        return self._liveness.is_up(host)


class NoHosts:
    """The API database's flows have no steps on hosts."""

    def send(self, host: str, work: Work) -> None:
        """Never called."""
        raise AssertionError(f"a flow of the API database sends work to {host}")

    def is_up(self, host: str) -> bool:
        """Nobody is."""
        return False
