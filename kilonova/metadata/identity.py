"""Who asks: from a request's headers or source address to the record of a server, with a short memory.

Behind Neutron's proxy the headers say which server asks and a signature proves that the proxy said so; without a
proxy the source address decides. A guest can forge a header, so headers count only in proxy mode.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from kilonova.core.metadata import InstanceMetadata

CACHED_SERVERS = 10_000


class Refused(Exception):
    """The request is answered with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Lookup(Protocol):
    """Where records come from; every method may be slow, so answers are remembered for some seconds."""

    def by_instance_id(self, uuid: str) -> InstanceMetadata | None:
        """The server with this UUID, None when there is none."""
        ...

    def by_address(self, address: str) -> InstanceMetadata | None:
        """The server that has this fixed address, None when there is none or more than one."""
        ...

    def by_provider(self, provider: str, address: str) -> InstanceMetadata | None:
        """The server whose port has this address on the network that this metadata provider serves."""
        ...

    def save_password(self, uuid: str, text: str) -> bool:
        """Store the guest's (encrypted) password; False when one is stored already."""
        ...


def sign(secret: str, text: str) -> str:
    """Neutron's signature of an instance id: hex HMAC-SHA256 with the shared secret."""
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


class Memory:
    """Records found in the last `seconds`. Threads share it; unknown servers are not remembered."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[tuple[str, ...], tuple[float, InstanceMetadata]] = {}

    def get(self, key: tuple[str, ...], find: Callable[[], InstanceMetadata | None]) -> InstanceMetadata | None:
        """The remembered record, else what `find` brings."""
        with self._lock:
            expires, record = self._found.get(key, (0.0, None))
        if record is not None and self._clock() < expires:
            return record
        record = find()
        if record is not None:
            self.put(key, record)
        return record

    def put(self, key: tuple[str, ...], record: InstanceMetadata) -> None:
        """Remember this record from now on."""
        if self._seconds <= 0:
            return
        now = self._clock()
        with self._lock:
            if len(self._found) >= CACHED_SERVERS:
                self._found = {known: entry for known, entry in self._found.items() if entry[0] > now}
            self._found[key] = (now + self._seconds, record)

    def replace(self, record: InstanceMetadata) -> None:
        """Put a changed record in the place of every remembered one of the same server, without a longer life."""
        with self._lock:
            for key, (expires, known) in list(self._found.items()):
                if known.uuid == record.uuid:
                    self._found[key] = (expires, record)


class Asker:
    """Finds the server that a request comes from, or refuses: 400 missing header, 403 wrong signature, 404 unknown."""

    def __init__(self, lookup: Lookup, secret: str, *, behind_proxy: bool, memory: Memory) -> None:
        self._lookup = lookup
        self._secret = secret
        self._behind_proxy = behind_proxy
        self._memory = memory

    def find(self, headers: Mapping[str, str], remote_address: str) -> InstanceMetadata:
        """The record of the asking server. `headers` has upper-case names."""
        if not self._behind_proxy:
            record = self._memory.get(("address", remote_address), lambda: self._lookup.by_address(remote_address))
        elif "X-METADATA-PROVIDER" in headers:
            record = self._by_provider(headers)
        else:
            record = self._by_instance(headers)
        if record is None:
            raise Refused(404, "No metadata is known for the address or instance that asks.")
        return record

    def _by_instance(self, headers: Mapping[str, str]) -> InstanceMetadata | None:
        uuid = _required(headers, "X-Instance-ID")
        project_id = _required(headers, "X-Tenant-ID")
        _required(headers, "X-Forwarded-For")
        self._check(uuid, headers.get("X-INSTANCE-ID-SIGNATURE", ""))
        record = self._memory.get(("uuid", uuid), lambda: self._lookup.by_instance_id(uuid))
        return record if record is not None and record.project_id == project_id else None

    def _by_provider(self, headers: Mapping[str, str]) -> InstanceMetadata | None:
        provider = _required(headers, "X-Metadata-Provider")
        address = _required(headers, "X-Forwarded-For")
        self._check(provider, headers.get("X-METADATA-PROVIDER-SIGNATURE", ""))
        return self._memory.get(("provider", provider, address), lambda: self._lookup.by_provider(provider, address))

    def _check(self, text: str, signature: str) -> None:
        # An empty secret would let anyone sign.
        expected = sign(self._secret, text)
        if not self._secret or not hmac.compare_digest(expected.encode(), signature.encode()):
            raise Refused(403, "The signature of the request does not fit: check metadata_proxy_shared_secret.")


def _required(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name.upper(), "").strip()
    if not value:
        raise Refused(400, f"The header {name} is missing.")
    if "," in value:
        raise Refused(400, f"The header {name} was given more than once.")
    return value
