"""nova-scheduler: chooses hosts."""

from __future__ import annotations

from kilonova.cmd import compose
from kilonova.cmd.program import program

main = program("nova-scheduler", lambda site: [compose.scheduler(site)], "Choose hosts for servers.")
