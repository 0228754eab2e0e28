"""The identity of a host: a file ``compute_id`` in its state folder, made once and never changed."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

NAME = "compute_id"


def identity(folder: Path) -> uuid.UUID:
    """The id in the folder's file; made at random when there is none. ValueError when the file holds no UUID."""
    path = folder / NAME
    try:
        return _read(path)
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{NAME}.{os.getpid()}")
    fresh.write_text(f"{uuid.uuid4()}\n")
    try:
        os.link(fresh, path)  # whoever is first wins; the other takes what is there
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return _read(path)


def _read(path: Path) -> uuid.UUID:
    text = path.read_text().strip()
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValueError(
            f"{path} does not hold a UUID; restore it, or delete it to give the host a new identity"
        ) from None
