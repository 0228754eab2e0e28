"""What a filter is."""

from __future__ import annotations

from collections.abc import Callable

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec

Filter = Callable[[HostState, RequestSpec], str | None]
"""From a host and a request to the reason of refusal; None lets the host pass."""
