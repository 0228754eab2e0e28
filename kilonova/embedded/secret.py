"""The secrets of one state directory: drawn once, kept in a file that only its owner reads."""

import base64
import json
import os
import secrets
from pathlib import Path

USERS = ("admin", "demo", "glance", "placement", "neutron", "cinder", "nova")
OTHERS = ("metadata_proxy_shared_secret", "volume_key")


def ensure_secrets(path: Path) -> dict[str, str]:
    """The passwords by user name and the other secrets by theirs; those that are missing are drawn and kept."""
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in USERS + OTHERS if name not in known]
    if missing:
        drawn = {name: secrets.token_hex(32) if name == "volume_key" else secrets.token_urlsafe(24) for name in missing}
        known |= drawn
        write_private(path, json.dumps(known, indent=1) + "\n")
    return known


def ensure_keys(folder: Path) -> None:
    """A repository of Fernet keys: one to encrypt with, one to come next."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    for name in ("0", "1"):
        if not (folder / name).exists():
            write_private(folder / name, base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
