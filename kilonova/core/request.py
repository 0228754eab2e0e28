"""What a server asks of a host, the answer of the scheduler, and the record of why."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.core.flavor import Flavor


class GroupMembers(msgspec.Struct, kw_only=True):
    """The server group of a request: its policy, its rules, and where its members are (uuid -> host)."""

    uuid: str
    policy: str
    rules: dict[str, str] = {}
    members: dict[str, str] = {}


class RequestSpec(msgspec.Struct, kw_only=True):
    """What scheduling decides on, for one or more equal servers of one request."""

    project_id: str
    user_id: str
    flavor: Flavor
    image_id: str | None = None
    image_properties: dict[str, str] = {}
    availability_zone: str | None = None
    hints: dict[str, list[str]] = {}
    group: GroupMembers | None = None
    force_host: str | None = None
    force_node: str | None = None
    requested_host: str | None = None
    requested_node: str | None = None
    ignore_hosts: list[str] = []
    volume_backed: bool = False
    port_requests: list[dict[str, Any]] = []
    request_id: str = ""


class Selection(msgspec.Struct, kw_only=True):
    """A host for a server. ``allocations`` is Placement's request body for the claim, so that an alternate can be
    claimed later; the first of a list is claimed already."""

    host: str
    node: str
    node_uuid: str
    cell: str
    allocations: dict[str, Any]
    allocation_version: str = "1.36"
    availability_zone: str | None = None


class Refusal(msgspec.Struct, kw_only=True):
    """Hosts that a filter refused: how many, and up to a few (host, reason)."""

    filter: str
    refused: int
    left: int
    reasons: list[tuple[str, str]] = []


class Why(msgspec.Struct, kw_only=True):
    """The record of one scheduling decision, for administrators.

    ``query`` is what Placement was asked; ``candidates`` how many providers it gave; ``lacking`` names what made it
    give none; ``filters`` in order; ``weights`` the best hosts with the parts of their weight; ``claims`` the attempts
    (host, result). ``seed`` makes the draw among equals repeatable.
    """

    query: str = ""
    candidates: int = 0
    lacking: list[str] = []
    prefilters: list[str] = []
    filters: list[Refusal] = []
    weights: list[tuple[str, float, dict[str, float]]] = []
    claims: list[tuple[str, str]] = []
    chosen: list[str] = []
    seed: str = ""
    seconds: float = 0.0
    brief: str = ""


class Decision(msgspec.Struct, kw_only=True):
    """The answer to a request: for each server the claimed host followed by alternates; and why."""

    selections: list[list[Selection]]
    why: Why
