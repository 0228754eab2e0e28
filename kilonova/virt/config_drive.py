"""Writes a config drive image from pairs of path and content: ISO 9660 by default, or VFAT."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

LABEL = "config-2"
VFAT_BYTES = 64 * 1024 * 1024
SECONDS = 60


class ConfigDriveFailed(Exception):
    """The image could not be written; the text says which program failed and what it said."""


def write_config_drive(
    files: Iterable[tuple[str, bytes]],
    target: Path,
    *,
    drive_format: Literal["iso9660", "vfat"] = "iso9660",
    mkisofs: str = "genisoimage",
) -> None:
    """Make `target` anew. It appears whole or not at all, readable by its owner alone (it may hold a password)."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".config-drive-") as folder:
        tree, image = Path(folder, "tree"), Path(folder, "image")
        for path, content in files:
            file = tree / path
            if not file.resolve().is_relative_to(tree.resolve()):
                raise ConfigDriveFailed(f"the path {path!r} leads out of the config drive")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if drive_format == "iso9660":
            _write_iso(tree, image, mkisofs)
        else:
            _write_vfat(tree, image)
        image.chmod(0o600)
        image.replace(target)


def _write_iso(tree: Path, image: Path, mkisofs: str) -> None:
    program = next((found for name in (mkisofs, "mkisofs", "xorrisofs") if (found := shutil.which(name))), None)
    if program is None:
        raise ConfigDriveFailed(f"{mkisofs} is not installed; it writes config drives (Debian: genisoimage)")
    flags = ["-quiet", "-J", "-r", "-l", "-ldots", "-allow-lowercase", "-allow-multidot"]
    if program.endswith("xorrisofs"):
        flags = ["-quiet", "-J", "-r", "-l"]
    _run([program, *flags, "-publisher", "OpenStack Compute", "-V", LABEL, "-o", str(image), str(tree)])


def _write_vfat(tree: Path, image: Path) -> None:
    with image.open("wb") as file:
        file.truncate(VFAT_BYTES)
    _run(["mkfs.vfat", "-n", LABEL, str(image)])
    _run(["mcopy", "-s", "-i", str(image), *map(str, sorted(tree.iterdir())), "::/"])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except OSError as error:
        raise ConfigDriveFailed(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigDriveFailed(f"{command[0]} did not end within {SECONDS} s") from error
    if done.returncode:
        raise ConfigDriveFailed(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
