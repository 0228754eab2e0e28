"""nova-conductor: drives flows. With [DEFAULT] cell it serves that cell, else the API database and every cell."""

from __future__ import annotations

from kilonova.base.service import Service
from kilonova.cmd import compose
from kilonova.cmd.program import program
from kilonova.cmd.site import Site


def services(site: Site) -> list[Service]:
    """The conductor of one cell, or of all there is."""
    cells = None if site.process.cell is None else ([""] if site.process.cell == "super" else [site.own_cell])
    return [compose.conductor(site, cells=cells)]


main = program("nova-conductor", services, "Drive workflows; the only one that writes databases for hosts.")
