"""The image of a config drive, read back with the field's own tools."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from kilonova.core.metadata_documents import config_drive_files
from kilonova.virt.config_drive import ConfigDriveFailed, write_config_drive
from tests.unit.metadata.records import FULL


@pytest.mark.skipif(not (shutil.which("genisoimage") and shutil.which("isoinfo")), reason="genisoimage is missing")
def test_iso(tmp_path: Path) -> None:
    image = tmp_path / "disk.config"
    files = dict(config_drive_files(FULL, seed=b"s" * 512))
    write_config_drive(files.items(), image)
    header = subprocess.run(["isoinfo", "-d", "-i", image], capture_output=True, text=True, check=True).stdout
    assert "Volume id: config-2" in header
    for path in ("openstack/latest/meta_data.json", "openstack/content/0000", "ec2/latest/user-data"):
        read = subprocess.run(["isoinfo", "-R", "-i", image, "-x", f"/{path}"], capture_output=True, check=True)
        assert read.stdout == files[path]
    assert stat.S_IMODE(image.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["disk.config"]


@pytest.mark.skipif(not (shutil.which("mkfs.vfat") and shutil.which("mtype")), reason="mtools or dosfstools is missing")
def test_vfat(tmp_path: Path) -> None:
    image = tmp_path / "disk.config"
    write_config_drive([("openstack/latest/user_data", b"hello")], image, drive_format="vfat")
    read = subprocess.run(["mtype", "-i", image, "::/openstack/latest/user_data"], capture_output=True, check=True)
    assert read.stdout == b"hello"
    assert image.stat().st_size == 64 * 1024 * 1024


def test_a_path_may_not_leave_the_drive(tmp_path: Path) -> None:
    with pytest.raises(ConfigDriveFailed, match="out of the config drive"):
        write_config_drive([("../../etc/passwd", b"x")], tmp_path / "disk.config")
