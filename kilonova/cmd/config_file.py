"""Which nova.conf a program reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

DEFAULT_FILES = (Path("/etc/nova/nova.conf"),)

config_file = click.option(
    "--config-file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A nova.conf; may be given more than once, the later one counts. Default: /etc/nova/nova.conf.",
)


def files_to_read(named: Sequence[Path]) -> list[Path]:
    """The files named, or the usual one if it is there."""
    return list(named) or [path for path in DEFAULT_FILES if path.is_file()]
