"""The modules whose import fills the table of operations: adding a resource means adding its name here."""

from __future__ import annotations

import importlib

RESOURCES = (
    "servers",
    "flavors",
    "flavor_access",
    "flavor_extra_specs",
    "keypairs",
    "limits",
    "quota_sets",
    "quota_class_sets",
    "server_groups",
    "aggregates",
    "availability_zones",
    "services",
    "hypervisors",
    "instance_actions",
    "extensions",
    "why",
    "trace",
)


def load() -> None:
    """Import every resource; doing it again changes nothing."""
    for name in RESOURCES:
        importlib.import_module(f"kilonova.api.{name}")
