"""Records to put into databases."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from kilonova.base.context import Context
from kilonova.base.flow import Run
from kilonova.core.flavor import Flavor
from kilonova.core.network import FixedIP, Nic
from kilonova.core.request import RequestSpec
from kilonova.core.server import Server
from kilonova.store.build_requests import BuildRequest

NOW = datetime.datetime(2026, 8, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)
FLAVOR = Flavor(
    flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1, extra_specs={"hw:cpu_policy": "shared"}
)


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def fresh(prefix: str = "") -> str:
    return f"{prefix}{uuid.uuid4()}" if not prefix else f"{prefix}-{uuid.uuid4().hex[:12]}"


def nic(*addresses: str) -> Nic:
    ips = [FixedIP(address=each, version=6 if ":" in each else 4) for each in addresses]
    return Nic(port_id=fresh(), network_id=fresh(), mac="fa:16:3e:00:00:01", fixed_ips=ips)


def server(**more: Any) -> Server:
    given: dict[str, Any] = {
        "uuid": fresh(),
        "project_id": "project",
        "user_id": "user",
        "name": "vm",
        "flavor": FLAVOR,
        "created_at": NOW,
    }
    return Server(**(given | more))


def active(**more: Any) -> Server:
    return server(**({"vm_state": "active", "task_state": None, "launched_at": NOW} | more))


def run(subject: str, **more: Any) -> Run:
    given: dict[str, Any] = {
        "id": fresh(),
        "flow": "stop",
        "action": "stop",
        "subject": subject,
        "state": {"server": subject},
        "context": Context(request_id=f"req-{uuid.uuid4()}", user_id="u", project_id="p"),
        "created_at": NOW,
    }
    return Run(**(given | more))


def build_request(wanted: Server) -> BuildRequest:
    spec = RequestSpec(project_id=wanted.project_id, user_id=wanted.user_id, flavor=wanted.flavor)
    return BuildRequest(server=wanted, request=spec, admin_password="hunter2", run=fresh())
