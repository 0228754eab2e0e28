"""The documents that say which versions there are: at /, at each version's root, and for paths of none."""

from __future__ import annotations

from typing import Any

from kilonova.api.call import Answer, Call
from kilonova.base.body import Query
from kilonova.base.errors import NotFound
from kilonova.base.operation import operation
from kilonova.base.versions import MAX, MIN

_KNOWN: dict[str, dict[str, str]] = {
    "v2.0": {
        "id": "v2.0", "status": "DEPRECATED", "version": "", "min_version": "", "updated": "2025-07-04T12:00:00Z",
    },
    "v2.1": {
        "id": "v2.1", "status": "CURRENT", "version": str(MAX), "min_version": str(MIN),
        "updated": "2013-07-23T11:33:21Z",
    },
}  # fmt: skip
_PATHS = {"v2.0": "v2", "v2.1": "v2.1"}


def _media(name: str) -> list[dict[str, str]]:
    version = _PATHS[name][1:]
    return [{"base": "application/json", "type": f"application/vnd.openstack.compute+json;version={version}"}]


def index(base: str) -> dict[str, Any]:
    """GET /."""
    return {
        "versions": [
            {**known, "links": [{"rel": "self", "href": f"{base}/{_PATHS[name]}/"}]} for name, known in _KNOWN.items()
        ]
    }


def choices(base: str, path: str) -> dict[str, Any]:
    """GET of a path that lies in no version: 300."""
    inner = path.strip("/")
    return {
        "choices": [
            {
                "id": name,
                "status": known["status"],
                "links": [{"rel": "self", "href": f"{base}/{_PATHS[name]}/{inner}"}],
                "media-types": _media(name),
            }
            for name, known in _KNOWN.items()
        ]
    }


def document(base: str, name: str) -> dict[str, Any]:
    """GET /v2.1/ and /v2/."""
    links = [
        {"rel": "self", "href": f"{base}/{_PATHS[name]}/"},
        {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"},
    ]
    return {"version": {**_KNOWN[name], "links": links, "media-types": _media(name)}}


class AnyParameters(Query):
    """Parameters are taken and passed over at every microversion."""


@operation("GET", "/versions/{id}", rule="@", query=AnyParameters, refuses={404})
def show_version(call: Call[None]) -> Answer:
    """The document of a version by its id; anybody with a token may read it."""
    call.authorized = True
    if call.params["id"] not in _KNOWN:
        raise NotFound()
    return Answer(document(call.base, call.params["id"]))
