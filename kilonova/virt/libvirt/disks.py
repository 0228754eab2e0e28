"""A guest's folder: its disks, its config drive, its console log.

Files appear whole or not at all: each is made under another name and renamed, so that a build that was killed half way
and is run again never takes a half-made disk for a finished one.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kilonova.base.errors import BuildAborted, BuildFailed
from kilonova.core.device import BlockDevice
from kilonova.virt.config_drive import ConfigDriveFailed, write_config_drive
from kilonova.virt.libvirt.domain import Disk
from kilonova.virt.roles import ConfigFile, GuestPlan

GIB = 1 << 30
MIB = 1 << 20
SECONDS = 600
SSH_PORT = "ssh_port"


class Folder:
    """The folder of one guest."""

    def __init__(self, instances: Path, server: str) -> None:
        self.path, self.server = instances / server, server

    @property
    def console_log(self) -> Path:
        """Where the serial console is written."""
        return self.path / "console.log"

    def ensure_ssh_port(self) -> int:
        """The port of the loopback address that is forwarded to the guest's ssh; kept while it is free."""
        note = self.path / SSH_PORT
        if note.exists():
            kept = int(note.read_text())
            if _is_free(kept):
                return kept
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        note.write_text(f"{port}\n")
        return port

    def ensure(self) -> None:
        """Make it; the hypervisor's user must be able to pass through."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o755)
        self.console_log.touch(exist_ok=True)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        if self.path.exists():
            shutil.rmtree(self.path)

    def ensure_disks(self, plan: GuestPlan, *, images_type: str) -> list[Disk]:
        """The guest's own disks and its volumes, root first; BuildFailed says what went wrong."""
        names = iter(f"vd{chr(ord('a') + n)}" for n in range(26))
        disks = []
        root_volume = next((d for d in plan.devices if d.is_root and d.is_volume), None)
        if root_volume is not None:
            disks.append(volume_disk(root_volume, next(names), server=self.server, boot_order=1))
        elif plan.image is not None:
            disks.append(self._ensure_root(plan, next(names), images_type=images_type))
        for device in plan.devices:
            if device.is_root or device.no_device:
                continue
            if device.is_volume:
                disks.append(volume_disk(device, next(names), server=self.server))
            elif device.source_type == "blank":
                disks.append(self._ensure_blank(device, next(names)))
        if plan.config_drive is not None:
            disks.append(self._ensure_config_drive(plan.config_drive, next(names)))
        return disks

    def _ensure_root(self, plan: GuestPlan, target: str, *, images_type: str) -> Disk:
        assert plan.image is not None
        path = self.path / "disk"
        wanted = plan.guest.server.flavor.root_gb * GIB
        form = "raw" if images_type in ("raw", "flat") else "qcow2"
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            if form == "raw":
                self._qemu_img("convert", "-f", plan.image_format, "-O", "raw", str(plan.image), str(fresh))
            else:
                base = ["-F", plan.image_format, "-b", str(plan.image)]
                self._qemu_img("create", "-q", "-f", "qcow2", *base, str(fresh))
            if wanted and wanted > self._virtual_size(fresh):
                self._qemu_img("resize", "-q", "-f", form, str(fresh), str(wanted))
            fresh.replace(path)
        return Disk(source=str(path), target=target, form=form, boot_order=1)

    def _ensure_blank(self, device: BlockDevice, target: str) -> Disk:
        is_swap = device.guest_format == "swap"
        path = self.path / f"disk.{'swap' if is_swap else device.uuid[:8]}"
        if not path.exists():
            fresh = path.with_suffix(".new")
            size = (device.size or 0) * (MIB if is_swap else GIB)
            self._qemu_img("create", "-q", "-f", "qcow2", str(fresh), str(size))
            fresh.replace(path)
        return Disk(source=str(path), target=target)

    def _ensure_config_drive(self, files: Sequence[ConfigFile], target: str) -> Disk:
        path = self.path / "disk.config"
        if not path.exists():
            try:
                write_config_drive([(f.path, f.content) for f in files], path)
            except (ConfigDriveFailed, OSError) as error:
                reason = f"the config drive could not be written: {error}"
                raise BuildFailed(server=self.server, reason=reason) from None
        return Disk(source=str(path), target=target, form="raw", read_only=True)

    def _virtual_size(self, path: Path) -> int:
        found = json.loads(self._qemu_img("info", "--output=json", "-U", str(path)))
        return int(found["virtual-size"])

    def _qemu_img(self, *words: str) -> str:
        try:
            done = subprocess.run(["qemu-img", *words], capture_output=True, text=True, check=False, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildFailed(server=self.server, reason=f"qemu-img {words[0]}: {error}") from None
        if done.returncode:
            raise BuildFailed(server=self.server, reason=f"qemu-img {words[0]}: {done.stderr.strip()}")
        return done.stdout


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def volume_disk(device: BlockDevice, target: str, *, server: str, boot_order: int | None = None) -> Disk:
    """A volume as a disk of the domain; BuildAborted for a kind of connection that this driver cannot make."""
    connection = device.connection or {}
    kind = connection.get("driver_volume_type")
    path = connection.get("device_path")
    if kind != "local" or not path:
        raise BuildAborted(server=server, reason=f"volumes connected by {kind} cannot be attached by this driver")
    return Disk(
        source=path,
        target=target,
        form="raw",
        serial=device.volume_id,
        boot_order=boot_order,
        shareable=device.multiattach,
        read_only=connection.get("access_mode") == "ro",
        is_block=Path(path).is_block_device(),
    )
