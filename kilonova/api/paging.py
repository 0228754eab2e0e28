"""Pages of lists: how many items, and the link to the next page."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import Any

from kilonova.api.call import Call


def page_size(call: Call[Any], limit: int | None) -> int:
    """How many items the answer may have: what was asked for, at most [api] max_limit."""
    most = call.options.api.max_limit
    return most if limit is None else min(limit, most)


def next_links(call: Call[Any], collection: str, last: str | None) -> list[dict[str, str]]:
    """The link behind a full page, whose last item's marker is ``last``; none without one.

    It repeats the parameters of the request, sorted, with the marker put in.
    """
    if last is None:
        return []
    params = {name: values for name, values in call.raw_query.items() if name != "marker"}
    params["marker"] = [last]
    pairs = [(name, value) for name in sorted(params) for value in params[name]]
    return [{"rel": "next", "href": f"{call.link_base}/{collection}?{urllib.parse.urlencode(pairs)}"}]


def with_links(
    call: Call[Any], body: dict[str, Any], name: str, *, collection: str, size: int, markers: Sequence[str]
) -> dict[str, Any]:
    """``body`` with ``<name>_links`` where the page is full (also when nothing follows), as clients know it."""
    if size > 0 and len(markers) >= size:
        body[f"{name}_links"] = next_links(call, collection, markers[-1])
    return body
