"""Where the neighbours' programs are: a venv of their own, so that their libraries and ours never meet."""

import os
import sys
from pathlib import Path

VARIABLE = "KILONOVA_NEIGHBOURS"


def find_prefix(given: Path | None = None) -> Path:
    """The venv of the neighbours: `given`, else $KILONOVA_NEIGHBOURS, else `<sys.prefix>-neighbours`, else sys.prefix.

    The third is also the answer when it does not exist yet and sys.prefix holds no Keystone: it is where to install.
    """
    if given is not None:
        return given.absolute()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).absolute()
    beside = Path(sys.prefix + "-neighbours")
    if not beside.exists() and (Path(sys.prefix) / "bin" / "keystone-manage").exists():
        return Path(sys.prefix)
    return beside


def python_of(prefix: Path) -> Path:
    """The interpreter of a venv."""
    return prefix / "bin" / "python"
