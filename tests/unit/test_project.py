"""The project's frame agrees with itself: version, libraries and their reasons, programs, the test runner's count."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kilonova

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def test_version_is_said_alike() -> None:
    assert PROJECT["version"] == kilonova.__version__


def test_changelog_names_the_version() -> None:
    release = PROJECT["version"].split(".dev")[0]
    assert f"\n## {release}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]])
def test_every_library_is_locked(requirement: str) -> None:
    locked = {name_of(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert name_of(requirement) in locked


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["libvirt"]])
def test_every_library_has_its_reason(requirement: str) -> None:
    reasons = (ROOT / "docs" / "design" / "0001-libraries.md").read_text().lower()
    table = " ".join(line.split("|")[1] for line in reasons.splitlines() if line.startswith("|"))
    named = {name_of(word) for word in re.split(r"[ ,()]+", table) if word}
    assert name_of(requirement) in named


@pytest.mark.parametrize("program", PROJECT["scripts"])
def test_every_program_is_there(program: str) -> None:
    module, _, function = PROJECT["scripts"][program].partition(":")
    assert function == "main"
    assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("layer", [path.parent.name for path in (ROOT / "kilonova").glob("*/__init__.py")])
def test_every_package_is_on_the_map(layer: str) -> None:
    assert f"`kilonova/{layer}`" in (ROOT / "docs" / "map.md").read_text()


def test_runner_counts_failures_and_broken_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # quicker: it starts five times
    (tmp_path / "tools").mkdir()
    runner = shutil.copy(ROOT / "tools" / "run-tests", tmp_path / "tools")
    for folder, text in {
        "unit": "def test_passes(): pass\ndef test_fails(): assert False\n",
        "db": "import pytest\ndef test_skips(): pytest.skip('no server')\n",
        "other": "import no_such_module\n",
    }.items():
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_it.py").write_text(text)

    everything = subprocess.run([sys.executable, runner], capture_output=True, text=True, check=False)
    assert everything.stdout.splitlines()[-1] == "1 passed, 2 failed, 1 skipped"
    assert everything.returncode == 1

    (tmp_path / "tests" / "unit" / "test_it.py").write_text("def test_passes(): pass\n")
    good = subprocess.run([sys.executable, runner, "unit", "db"], capture_output=True, text=True, check=False)
    assert good.stdout.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"
    assert good.returncode == 0

    nothing = subprocess.run([sys.executable, runner, "db"], capture_output=True, text=True, check=False)
    assert nothing.returncode == 1
