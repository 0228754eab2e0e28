"""Filters: each says of one host why it cannot take the request, or nothing. Pure."""

from __future__ import annotations

from kilonova.scheduler.filters import aggregates, capabilities, compute, groups, image
from kilonova.scheduler.filters.base import Filter

FILTERS: dict[str, Filter] = {
    name: filter_
    for module in (compute, capabilities, image, aggregates, groups)
    for name, filter_ in module.FILTERS.items()
}
"""Every filter by the name that ``enabled_filters`` uses."""
