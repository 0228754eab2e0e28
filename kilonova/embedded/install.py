"""Install the neighbours into a venv of their own, once: `python -m kilonova.embedded.install [PREFIX]`.

A stamp in the prefix holds the hash of the frozen requirements, so a second run is instant. Beside the stamp lie the
empty SQLite databases with the neighbours' schemas, so that a first start copies files instead of running migrations.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from kilonova.embedded.failures import EmbeddedError
from kilonova.embedded.prefix import find_prefix, python_of

PARTS = ("keystone", "glance", "placement", "neutron", "cinder")
PACKAGE = Path(__file__).parent.parent
REQUIREMENTS = PACKAGE.parent / "requirements-neighbours.txt"
Report = Callable[[str], None]


def say(text: str) -> None:
    """The default way to report progress: standard error."""
    print(text, file=sys.stderr, flush=True)


def stamp_of(requirements: Path = REQUIREMENTS) -> str:
    """The hash that a finished installation bears: of the requirements and of the program that makes the schemas."""
    digest = hashlib.sha256((PACKAGE / "embedded" / "launch" / "schema.py").read_bytes())
    if requirements.exists():
        digest.update(requirements.read_bytes())
    return digest.hexdigest()[:16]


def share_of(prefix: Path) -> Path:
    """Where our own files in the neighbours' venv are."""
    return prefix / "share" / "kilonova"


def template_of(prefix: Path, name: str) -> Path:
    """The empty database of one part."""
    return share_of(prefix) / f"{name}.db"


def is_installed(prefix: Path) -> bool:
    """Whether the prefix bears the stamp of the present requirements."""
    try:
        return (share_of(prefix) / "stamp").read_text() == stamp_of()
    except OSError:
        return False


def ensure_installed(prefix: Path, report: Report = say) -> bool:
    """Make the venv, install the requirements, make the templates, where not done; answers whether anything was done.

    EmbeddedError when pip or a schema fails, with the end of its output.
    """
    if is_installed(prefix):
        return False
    share_of(prefix).mkdir(parents=True, exist_ok=True)
    with _locked(share_of(prefix) / "lock"):
        if is_installed(prefix):
            return False
        if not python_of(prefix).exists():
            report(f"making {prefix}")
            _run([sys.executable, "-m", "venv", str(prefix)])
        if REQUIREMENTS.exists():
            report("installing the identity, image, placement, network and volume services (some minutes)")
            _run(
                [
                    str(python_of(prefix)),
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--disable-pip-version-check",
                    "-r",
                    str(REQUIREMENTS),
                ]
            )
        elif not (prefix / "bin" / "keystone-manage").exists():
            raise EmbeddedError(
                f"the neighbours are not installed in {prefix} and {REQUIREMENTS} is not there to install them from"
            )
        report("making their database schemas")
        for name in PARTS:
            template_of(prefix, name).unlink(missing_ok=True)
        ensure_schemas(prefix, {name: template_of(prefix, name) for name in PARTS})
        (share_of(prefix) / "stamp").write_text(stamp_of())
    return True


def ensure_schemas(prefix: Path, databases: dict[str, Path]) -> None:
    """Make each database with its part's schema, or bring it up to date, side by side; all or, on an error, none."""
    with ThreadPoolExecutor(max_workers=min(len(databases), os.cpu_count() or 1)) as pool:
        for _ in pool.map(lambda item: _ensure_schema(prefix, *item), databases.items()):
            pass


def _ensure_schema(prefix: Path, name: str, database: Path) -> None:
    with tempfile.TemporaryDirectory(dir=database.parent) as scratch:
        lib = link_library(Path(scratch) / "lib")
        work = Path(scratch) / database.name
        if database.exists():
            shutil.copyfile(database, work)
        _run(
            [str(python_of(prefix)), "-P", "-W", "ignore", "-m", "kilonova.embedded.launch.schema", name, str(work)],
            {"PYTHONPATH": str(lib)},
        )
        work.replace(database)


def link_library(folder: Path) -> Path:
    """A folder for PYTHONPATH that holds our package and nothing else of our own environment; answers the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "kilonova"
    if not link.is_symlink() or link.readlink() != PACKAGE:
        link.unlink(missing_ok=True)
        link.symlink_to(PACKAGE)
    return folder


def _run(command: list[str], extra: dict[str, str] | None = None) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OS_", "VIRTUAL_"))}
    done = subprocess.run(
        command,
        env=environment | (extra or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[-12:])
        raise EmbeddedError(f"{' '.join(command[:6])} ended with {done.returncode}:\n{tail}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """The command line: one optional argument, the prefix."""
    prefix = find_prefix(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    try:
        done = ensure_installed(prefix)
    except EmbeddedError as error:
        say(str(error))
        return 1
    say(f"the neighbours are {'now' if done else 'already'} installed in {prefix}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
