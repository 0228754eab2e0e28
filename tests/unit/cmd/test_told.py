"""Who runs the cloud of a state directory."""

import fcntl
from pathlib import Path

import pytest

from kilonova.cmd import told
from kilonova.cmd.settings import Layout
from kilonova.embedded.ports import Ports


def test_of_two_that_start_at_the_same_moment_one_claims_the_cloud(tmp_path: Path) -> None:
    layout = Layout(tmp_path, Ports())
    layout.pid_file.parent.mkdir(parents=True)
    with layout.pid_file.with_suffix(".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="another process"):
            told.claim(layout)
        assert not layout.pid_file.exists()
    told.claim(layout)
    told.claim(layout, hypervisor="fake")
    assert layout.pid_file.exists()
