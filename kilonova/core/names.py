"""Names that are made: host names from display names, names in a batch, reservation ids, passwords."""

from __future__ import annotations

import re
import secrets
import string
import unicodedata

_READABLE = ("23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz")


def hostname_of(name: str, *, otherwise: str) -> str:
    """A host name made of a display name: letters, digits, hyphens, at most 63; ``otherwise`` if none is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[ _.]", "-", plain)
    plain = re.sub(r"[^\w.-]+", "", plain).lower().strip(".-")[:63].rstrip(".-")
    return plain or otherwise


def in_batch(name: str, index: int, size: int) -> str:
    """The name of the server with this index (from 0) in a batch; its own where it is alone."""
    return name if size == 1 else f"{name}-{index + 1}"


def reservation_id() -> str:
    """A fresh id of a create request: ``r-`` and eight characters."""
    alphabet = string.ascii_lowercase + string.digits
    return "r-" + "".join(secrets.choice(alphabet) for _ in range(8))


def password(length: int) -> str:
    """A fresh password of characters that are not mistaken for each other, of every kind where it is long enough."""
    chosen = [secrets.choice(group) for group in _READABLE]
    everything = "".join(_READABLE)
    chosen += [secrets.choice(everything) for _ in range(max(length - len(chosen), 0))]
    secrets.SystemRandom().shuffle(chosen)
    return "".join(chosen[:length])
