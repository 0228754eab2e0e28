"""Log files of children: a fresh one at each start, three old ones kept, none larger than a bound."""

import os
import shutil
from pathlib import Path

KEPT = 3
BOUND = 20 * 1024 * 1024


def rotate_log(path: Path) -> None:
    """Move NAME.log to NAME.log.1 and so on; the oldest goes. Nothing when the log is absent or empty."""
    if not path.exists() or path.stat().st_size == 0:
        return
    _shift(path)
    path.replace(_old(path, 1))


def bound_log(path: Path, bound: int = BOUND) -> None:
    """When a log in use has outgrown the bound, copy it aside and empty it: its writer appends, so it goes on at 0."""
    if not path.exists() or path.stat().st_size <= bound:
        return
    _shift(path)
    shutil.copyfile(path, _old(path, 1))
    os.truncate(path, 0)


def _shift(path: Path) -> None:
    for number in range(KEPT - 1, 0, -1):
        if _old(path, number).exists():
            _old(path, number).replace(_old(path, number + 1))


def _old(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
