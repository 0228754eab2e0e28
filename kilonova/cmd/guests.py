"""Ends the real guests of a state directory, also those that a killed cloud left behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kilonova.base import log
from kilonova.base.errors import Fault
from kilonova.cmd.settings import Layout
from kilonova.embedded.failures import EmbeddedError
from kilonova.embedded.hypervisor import Hypervisor
from kilonova.embedded.plane.facts import Facts
from kilonova.embedded.plane.plane import Plane, available

if TYPE_CHECKING:
    from kilonova.virt.libvirt.driver import LibvirtDriver

LOG = log.of(__name__)
GRACE = 10.0


def end(layout: Layout) -> int:
    """Shut the guests down, power off those that take long; how many there were. libvirt must answer."""
    try:
        with _driver(layout) as driver:
            running = [server for server, state in driver.guests().items() if state not in (0, 4)]
            with ThreadPoolExecutor(16, "guests") as pool:
                list(pool.map(lambda server: driver.power_off(server, grace=GRACE), running))
            return len(running)
    except Fault as error:
        LOG.warning("guests may still run: %s", error.message)
        return 0


def clear(layout: Layout, *, wipe: bool) -> list[str]:
    """What a killed cloud left: its guests and networks; with ``wipe`` the domains too, as their disks are going.

    Texts tell what was done or could not be.
    """
    if not (layout.compute / "instances").is_dir():
        return []
    if os.geteuid() != 0:
        return _clear_guests(layout, wipe=wipe)
    daemons = Hypervisor(layout.state)
    try:
        daemons.start()
        told = _clear_guests(layout, wipe=wipe)
    except EmbeddedError as error:
        told = [f"guests may be left: {error}"]
    finally:
        daemons.stop()
    return told + _clear_networks(layout)


def _clear_guests(layout: Layout, *, wipe: bool) -> list[str]:
    ended = end(layout)
    told = [f"ended {ended} guests that were still running"] if ended else []
    try:
        if wipe:
            _forget(layout)
    except Fault as error:
        told.append(f"guests may be left: {error}")
    return told


def _forget(layout: Layout) -> None:
    with _driver(layout) as driver:
        for server in driver.guests():
            driver.remove_guest(server)


@contextlib.contextmanager
def _driver(layout: Layout) -> Iterator[LibvirtDriver]:
    # libvirt's binding is not there on machines that simulate guests.
    from kilonova.virt.libvirt.driver import LibvirtDriver
    from kilonova.virt.libvirt.options import LibvirtOptions

    driver = LibvirtDriver(LibvirtOptions(virt_type="qemu"), host="", node_uuid="", state=layout.compute)
    driver.start()
    try:
        yield driver
    finally:
        driver.close()


def _clear_networks(layout: Layout) -> list[str]:
    if not (layout.state / "plane").is_dir() or not available()[0]:
        return []
    return Plane(layout.state, _NoFacts(), metadata="", secret="").teardown()


class _NoFacts:
    """For a plane that is only to be torn down."""

    def read(self) -> Facts:
        raise EmbeddedError("a plane that is torn down asks nothing")

    def reserve_dhcp_port(self, network_id: str, subnet_ids: list[str], host: str) -> None:
        raise EmbeddedError("a plane that is torn down makes nothing")
