"""nova-compute: the agent of one hypervisor."""

from __future__ import annotations

from kilonova.base.service import Service
from kilonova.cmd.hosts import hosts
from kilonova.cmd.program import program
from kilonova.cmd.site import Site


def services(site: Site) -> list[Service]:
    """This host. It has no database: the bus that it joins is its cell's."""
    return hosts(site, [(site.process.host, "")], driver=site.process.compute_driver)


main = program("nova-compute", services, "Hold the guests of one hypervisor.")
