"""Cinder's volume driver for plain files on this machine; it runs inside Cinder, not in our processes.

A volume is a sparse raw file that a guest on this machine opens directly (connection type `local`). A snapshot or a
clone is a copy, which costs nothing on file systems that share blocks. Long work is done by `cp` and `qemu-img` as
child processes, so that Cinder goes on answering meanwhile.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cinder import exception
from cinder.volume import driver
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_utils.imageutils import format_inspector

GIB = 1024**3
QEMU_NAMES = {"vhd": "vpc", "vhdx": "vhdx", "vdi": "vdi", "vmdk": "vmdk", "qcow2": "qcow2"}
OPTIONS = [cfg.StrOpt("kilonova_volumes", help="The folder of the volume files.")]


class FileVolumeDriver(driver.VolumeDriver):  # type: ignore[misc]  # Cinder is not there for mypy
    """Volumes as files; the folder is the option kilonova_volumes of the backend's section."""

    VERSION = "1.0"
    vendor_name = "Kilonova"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.configuration.append_config_values(OPTIONS)
        self.folder = Path(self.configuration.kilonova_volumes)

    def check_for_setup_error(self) -> None:
        """The folder is there and can be written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise exception.VolumeBackendAPIException(data=f"the folder of volumes, {self.folder}, cannot be written")

    def local_path(self, volume: Any) -> str:
        """Where a volume's file is."""
        return str(self.folder / volume.name)

    def create_volume(self, volume: Any) -> None:
        """An empty sparse file."""
        with _made(self.folder / volume.name) as fresh:
            _resize(fresh, volume.size)

    def create_volume_from_snapshot(self, volume: Any, snapshot: Any) -> None:
        """A copy of the snapshot, grown to the volume's size."""
        self._copy(snapshot.name, volume.name, volume.size)

    def create_cloned_volume(self, volume: Any, src_vref: Any) -> None:
        """A copy of the other volume as it is now, grown to the new size."""
        self._copy(src_vref.name, volume.name, volume.size)

    def delete_volume(self, volume: Any) -> None:
        """The file goes; nothing when it has gone."""
        (self.folder / volume.name).unlink(missing_ok=True)

    def create_snapshot(self, snapshot: Any) -> None:
        """A copy of the volume as it is now."""
        self._copy(snapshot.volume.name, snapshot.name, None)

    def delete_snapshot(self, snapshot: Any) -> None:
        """The copy goes; nothing when it has gone."""
        (self.folder / snapshot.name).unlink(missing_ok=True)

    def revert_to_snapshot(self, context: Any, volume: Any, snapshot: Any) -> None:
        """The volume's content becomes the snapshot's again, its size stays."""
        self._copy(snapshot.name, volume.name, volume.size)

    def extend_volume(self, volume: Any, new_size: int) -> None:
        """The file grows to `new_size` GiB; a guest that has it open sees that when it is told to look."""
        _resize(self.folder / volume.name, new_size)

    def clone_image(
        self, context: Any, volume: Any, image_location: Any, image_meta: dict[str, Any], image_service: Any
    ) -> tuple[dict[str, Any], bool]:
        """A volume with an image's content: fetched, checked, made raw, grown to the volume's size."""
        self.copy_image_to_volume(context, volume, image_service, image_meta["id"])
        return {}, True

    def copy_image_to_volume(
        self, context: Any, volume: Any, image_service: Any, image_id: str, disable_sparse: bool = False
    ) -> None:
        """As clone_image, over a volume that exists."""
        meta = image_service.show(context, image_id)
        with _made(self.folder / volume.name) as raw:
            if meta["disk_format"] == "raw":
                self._fetch(context, image_service, image_id, raw)
            else:
                with _made(self.folder / f"{volume.name}.image", keep=False) as fetched:
                    self._fetch(context, image_service, image_id, fetched)
                    _convert(fetched, raw, meta)
            if raw.stat().st_size > volume.size * GIB:
                raise exception.ImageUnacceptable(
                    image_id=image_id,
                    reason=(f"its disk of {raw.stat().st_size} bytes does not fit into a volume of {volume.size} GiB"),
                )
            _resize(raw, volume.size)

    def copy_volume_to_image(self, context: Any, volume: Any, image_service: Any, image_meta: dict[str, Any]) -> None:
        """Upload the content in the image's format."""
        source = self.folder / volume.name
        wanted = image_meta["disk_format"]
        if wanted == "raw":
            self._upload(context, image_service, image_meta["id"], source)
            return
        with _made(self.folder / f"{volume.name}.upload", keep=False) as converted:
            _qemu_img("convert", "-f", "raw", "-O", QEMU_NAMES.get(wanted, wanted), str(source), str(converted))
            self._upload(context, image_service, image_meta["id"], converted)

    def initialize_connection(self, volume: Any, connector: Any, **_more: Any) -> dict[str, Any]:
        """How a guest of this machine opens the volume: a path."""
        readonly = volume.admin_metadata.get("readonly") == "True" if volume.admin_metadata else False
        return {
            "driver_volume_type": "local",
            "data": {
                "device_path": self.local_path(volume),
                "access_mode": "ro" if readonly else "rw",
                "discard": True,
            },
        }

    def terminate_connection(self, volume: Any, connector: Any, **_more: Any) -> None:
        """Nothing is held for a connection."""

    def ensure_export(self, context: Any, volume: Any) -> None:
        """Nothing to export."""

    def create_export(self, context: Any, volume: Any, connector: Any) -> None:
        """Nothing to export."""

    def remove_export(self, context: Any, volume: Any) -> None:
        """Nothing to export."""

    def create_export_snapshot(self, context: Any, snapshot: Any, connector: Any) -> None:
        """Nothing to export."""

    def remove_export_snapshot(self, context: Any, snapshot: Any) -> None:
        """Nothing to export."""

    def _update_volume_stats(self) -> None:
        usage = shutil.disk_usage(self.folder)
        promised = sum(path.stat().st_size for path in self.folder.glob("volume-*"))
        self._stats = {
            "volume_backend_name": self.configuration.safe_get("volume_backend_name") or "local",
            "vendor_name": self.vendor_name,
            "driver_version": self.VERSION,
            "storage_protocol": "local",
            "total_capacity_gb": usage.total / GIB,
            "free_capacity_gb": usage.free / GIB,
            "provisioned_capacity_gb": promised / GIB,
            "reserved_percentage": 0,
            "max_over_subscription_ratio": "100.0",
            "thin_provisioning_support": True,
            "thick_provisioning_support": False,
            "multiattach": True,
            "online_extend_support": True,
            "QoS_support": False,
            "sparse_copy_volume": True,
        }

    def _copy(self, source: str, target: str, size: int | None) -> None:
        with _made(self.folder / target) as fresh:
            _execute("cp", "--reflink=auto", "--sparse=always", str(self.folder / source), str(fresh))
            if size is not None:
                _resize(fresh, size)

    def _fetch(self, context: Any, image_service: Any, image_id: str, target: Path) -> None:
        with target.open("wb") as file:
            image_service.download(context, image_id, file)

    def _upload(self, context: Any, image_service: Any, image_id: str, source: Path) -> None:
        with source.open("rb") as file:
            image_service.update(context, image_id, {}, file)


@contextmanager
def _made(path: Path, *, keep: bool = True) -> Iterator[Path]:
    """A file under another name while it is made, its owner's alone, then in place; nothing is left after a failure."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield fresh
        if keep:
            fresh.replace(path)
    except OSError as error:
        raise exception.VolumeBackendAPIException(data=f"{path}: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _resize(path: Path, gib: int) -> None:
    if path.stat().st_size < gib * GIB:
        os.truncate(path, gib * GIB)


def _convert(source: Path, target: Path, meta: dict[str, Any]) -> None:
    """Make an image raw. What it is, is read from its content, and an image that points at other files is refused."""
    try:
        found = format_inspector.detect_file_format(str(source))
        if found is None:
            raise format_inspector.ImageFormatError("its content is of no known format")
        found.safety_check()
    except (format_inspector.ImageFormatError, format_inspector.SafetyCheckFailed) as error:
        raise exception.ImageUnacceptable(image_id=meta["id"], reason=f"unsafe or broken content: {error}") from error
    declared = meta["disk_format"]
    if str(found) == "raw" and declared in ("ami", "iso", "aki", "ari"):
        _execute("cp", "--sparse=always", str(source), str(target))
        return
    if str(found) != declared and (declared, str(found)) != ("iso", "gpt"):
        raise exception.ImageUnacceptable(
            image_id=meta["id"], reason=f"its disk_format says {declared}, its content is {found}"
        )
    if declared == "iso":
        _execute("cp", "--sparse=always", str(source), str(target))
        return
    _qemu_img("convert", "-f", QEMU_NAMES.get(declared, declared), "-O", "raw", str(source), str(target))


def _qemu_img(*arguments: str) -> None:
    if shutil.which("qemu-img") is None:
        raise exception.VolumeBackendAPIException(
            data="qemu-img is needed to convert images and is not installed (package qemu-utils); raw images need none"
        )
    _execute("qemu-img", *arguments)


def _execute(*command: str) -> None:
    try:
        processutils.execute(*command)
    except processutils.ProcessExecutionError as error:
        raise exception.VolumeBackendAPIException(data=f"{command[0]}: {str(error.stderr).strip()}") from error
