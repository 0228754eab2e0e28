"""Runs the programs that look at and change a host's networks: ip, nft and what runs in a namespace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

SECONDS = 20
JsonObject = dict[str, object]


class CommandFailed(Exception):
    """A program failed; the text is its name and what it said."""


def run(command: Sequence[str], text: str = "") -> str:
    """Run to the end and return the standard output; CommandFailed otherwise."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False)
    except OSError as error:
        raise CommandFailed(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{' '.join(command)}: no end after {SECONDS} s") from error
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return done.stdout


class Commands:
    """Commands in a namespace by its name, "" being the host's own.

    `host_namespace` puts another namespace in the host's place: several hosts on one machine, and tests.
    """

    def __init__(self, host_namespace: str | None = None) -> None:
        self._host = host_namespace or ""

    def ip(self, namespace: str, *words: str) -> str:
        """Run ip."""
        name = namespace or self._host
        return run(["ip", *(["-n", name] if name else []), *words])

    def netns(self, *words: str) -> str:
        """Run ip netns. Names of namespaces are the machine's: inside another namespace they would not be seen."""
        return run(["ip", "netns", *words])

    def ip_json(self, namespace: str, *words: str) -> list[JsonObject]:
        """Run ip and decode what it lists."""
        listed: list[JsonObject] = json.loads(self.ip(namespace, "-j", *words) or "[]")
        # Some versions of ip list an empty object for each thing that a filter leaves out.
        return [entry for entry in listed if entry]

    def inside(self, namespace: str, *words: str, text: str = "") -> str:
        """Run a program in the namespace."""
        name = namespace or self._host
        return run([*(["ip", "netns", "exec", name] if name else []), *words], text)

    def set_kernel(self, namespace: str, setting: str, value: str) -> None:
        """Write a setting below /proc/sys/net of the namespace."""
        self.inside(namespace, "tee", f"/proc/sys/net/{setting}", text=value)
