"""What tests with real guests need: root, QEMU and libvirt, and the guest image that this checkout built."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilonova.cmd.demo import built_image
from kilonova.embedded import hypervisor
from kilonova.embedded.hypervisor import Hypervisor
from kilonova.virt.libvirt import probe
from tests.services import lack


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that the hypervisor's own user may pass through, as pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="kilonova-guests-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if not os.environ.get("KILONOVA_TEST_KEEP"):
            shutil.rmtree(folder)


@pytest.fixture(scope="session")
def guest_image() -> Path:
    """The tiny guest, a qcow2."""
    path = built_image()
    if path is None:
        lack("build/guest.qcow2 is not there: make guest-image")
    return path


@pytest.fixture(scope="session")
def libvirt_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """libvirt answers; started here when the machine does not run it."""
    reason = probe.missing() or hypervisor.missing()
    if os.geteuid() != 0:
        reason = "real guests with networks need root"
    if reason is not None:
        lack(reason)
    daemons = Hypervisor(tmp_path_factory.mktemp("hypervisor"))
    daemons.start()
    yield
    daemons.stop()
