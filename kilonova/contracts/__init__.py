"""The RPC contracts: what services may ask of each other. See ``kilonova.base.rpc``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GENERATION: Final = 80
"""The number that services write into the services table. It grows whenever a contract does: the oldest of a cell
tells what may be asked of all. Begins above what clients know from the system that this one replaces."""

COMPUTE_VERSIONS: Final[Mapping[int, str]] = {80: "1.0"}
"""The version of the contract ``Compute`` by the generation that brought it."""
