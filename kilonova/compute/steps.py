"""A host's part of the workflows: ports, volumes, the guest. Each step is safe to repeat."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from kilonova.base import rpc
from kilonova.base.errors import (
    BadRequest,
    BuildAborted,
    BuildFailed,
    Fault,
    NeighbourUnavailable,
    NotImplementedHere,
    RunSuperseded,
    ServerNotFound,
)
from kilonova.clients import volumes
from kilonova.clients.cinder import Cinder
from kilonova.clients.neutron import Neutron
from kilonova.clients.vendordata import VendorData
from kilonova.compute.images import Images
from kilonova.compute.options import ComputeOptions
from kilonova.contracts.compute import Attached, Compute, Nothing, Plugged, Power, Spawned
from kilonova.core.device import BlockDevice
from kilonova.core.metadata_documents import config_drive_files
from kilonova.core.metadata_record import record_of
from kilonova.core.network import NetworkRequest, Nic
from kilonova.core.server import Guest
from kilonova.virt.roles import SHUTDOWN, ConfigFile, Driver, GuestPlan, Powers

Check = Callable[[], None]

SEED_BYTES = 512


class Builds:
    """How builds have gone here since the last one that came off."""

    def __init__(self) -> None:
        self.failed = 0
        self._lock = threading.Lock()

    def ended(self, *, well: bool) -> None:
        """One more."""
        with self._lock:
            self.failed = 0 if well else self.failed + 1


class Tools(NamedTuple):
    """What the steps of one host work with. ``images`` is None when the driver needs no files of images.

    ``changed`` is to be called when what the host holds has changed; ``power_seen`` with a server's new power state
    (None: it is gone).
    """

    host: str
    driver: Driver
    neutron: Neutron
    cinder: Cinder
    images: Images | None
    options: ComputeOptions
    builds: Builds
    changed: Callable[[], None]
    power_seen: Callable[[str, int | None], None]
    vendor: VendorData | None = None


class Steps:
    """The contract's steps, for one piece of work. ``check`` raises RunSuperseded when it is not wanted any more."""

    def __init__(self, tools: Tools, check: Check = lambda: None) -> None:
        self._tools, self._check = tools, check

    def plug_ports(self, *, guest: Guest, networks: list[NetworkRequest] | None, host: str) -> Plugged:
        server = guest.server
        if not networks:
            return Plugged(nics=[])
        with self._building(server.uuid):
            nics = self._tools.neutron.ensure_ports(
                server.uuid,
                networks,
                project_id=server.project_id,
                host=host,
                security_groups=server.security_groups,
                zone=server.availability_zone or "nova",
                hostname=server.hostname,
            )
        return Plugged(nics=nics)

    def unplug_ports(self, *, guest: Guest, networks: list[NetworkRequest] | None, host: str) -> Nothing:
        if networks:
            self._tools.neutron.release_ports(guest.server.uuid)
        return Nothing()

    def attach_volumes(self, *, guest: Guest, devices: list[BlockDevice], host: str) -> Attached:
        server, tools = guest.server, self._tools
        if not any(device.is_volume for device in devices):
            return Attached(devices=devices)
        with self._building(server.uuid):
            made = volumes.ensure_volumes(
                tools.cinder,
                devices,
                server=server.uuid,
                project_id=server.project_id,
                seconds=tools.options.block_device_allocate_seconds,
                check=self._check,
            )
            connector = connector_of(host, tools.options)
            attached = volumes.ensure_attached(
                tools.cinder, made, server=server.uuid, connector=connector, check=self._check
            )
        return Attached(devices=attached)

    def detach_volumes(self, *, guest: Guest, devices: list[BlockDevice], host: str) -> Nothing:
        volumes.disconnect(self._tools.cinder, devices, server=guest.server.uuid, host=host)
        return Nothing()

    def spawn_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> Spawned:
        server, tools = guest.server, self._tools
        try:
            with self._building(server.uuid):
                plan = self._plan(guest, nics, devices)
                self._check()
                power = tools.driver.ensure_guest(plan)
                self._check()
        except Exception as error:
            if not isinstance(error, RunSuperseded):
                tools.builds.ended(well=False)
            tools.changed()
            raise
        tools.builds.ended(well=True)
        self._seen(server.uuid, power)
        return Spawned(power_state=power, root_device_name=root_device_name(guest, devices))

    def destroy_guest(self, *, guest: Guest, devices: list[BlockDevice] = []) -> Nothing:  # noqa: B006 the contract's
        self._tools.driver.remove_guest(guest.server.uuid)
        self._seen(guest.server.uuid, None)
        return Nothing()

    def start_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> Power:
        driver = self._powers()
        return self._powered(guest, driver.power_on(self._plan(guest, nics, devices)))

    def stop_guest(self, *, guest: Guest) -> Power:
        driver, grace = self._powers(), self._tools.options.shutdown_timeout
        try:
            return self._powered(guest, driver.power_off(guest.server.uuid, grace=grace))
        except ServerNotFound:
            return Power(power_state=SHUTDOWN)  # what is not there does not run; a start makes it anew

    def reboot_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice], hard: bool = False) -> Power:
        plan = self._plan(guest, nics, devices)
        grace = self._tools.options.shutdown_timeout
        return self._powered(guest, self._powers().reboot(plan, hard=hard, grace=grace))

    def _powers(self) -> Powers:
        if not isinstance(self._tools.driver, Powers):
            raise NotImplementedHere("The hypervisor of this server cannot switch its power.")
        return self._tools.driver

    def _powered(self, guest: Guest, power: int) -> Power:
        self._seen(guest.server.uuid, power)
        return Power(power_state=power)

    def _seen(self, server: str, power: int | None) -> None:
        self._tools.power_seen(server, power)
        self._tools.changed()

    def _plan(self, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> GuestPlan:
        server, images = guest.server, self._tools.images
        plan = GuestPlan(guest=guest, nics=nics, devices=devices, config_drive=self._config_drive(guest, nics, devices))
        if images is None or server.volume_backed:
            return plan
        wanted = {"image": server.image_id, "kernel": server.kernel_id, "ramdisk": server.ramdisk_id}
        for field, image_id in wanted.items():
            if image_id:
                staged = images.ensure(image_id, server=server.uuid, check=self._check)
                setattr(plan, field, staged.path)
                if field == "image":
                    plan.image_format = staged.format
        return plan

    def _config_drive(self, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> list[ConfigFile] | None:
        options, vendor, server = self._tools.options, self._tools.vendor, guest.server
        mandatory = server.image_properties.get("img_config_drive") == "mandatory"
        if not (server.config_drive or mandatory or options.force_config_drive):
            return None
        record = record_of(guest, nics, devices, domain=options.dhcp_domain)
        if vendor is not None:
            told = {"vendor_static": vendor.static(), "vendor_dynamic": vendor.dynamic(record)}
            record = msgspec.structs.replace(record, **told)
        files = config_drive_files(record, seed=os.urandom(SEED_BYTES))
        return [ConfigFile(path, content) for path, content in files]

    @contextlib.contextmanager
    def _building(self, server: str) -> Iterator[None]:
        """What fails in here fails the build: BuildAborted when no other host would do better, else BuildFailed."""
        try:
            yield
        except (BuildAborted, BuildFailed, RunSuperseded):
            raise
        except NeighbourUnavailable as error:
            away = error.facts.get("neighbour", "")
            raise BuildFailed(server=server, reason=error.message, neighbour=away) from error
        except Fault as error:
            kind = BuildAborted if error.code < 500 else BuildFailed
            raise kind(server=server, reason=error.message) from error


def perform(tools: Tools, method: str, state: dict[str, Any], check: Check) -> dict[str, Any]:
    """Run the contract's method of that name: its arguments are taken from the state by their names."""
    known = rpc.methods(Compute).get(method)
    if known is None or not hasattr(Steps, method):
        raise NotImplementedHere(f"The host does not know the step {method}.")
    try:
        wanted = {name: state[name] for name in known.arguments.__struct_fields__ if name in state}
        arguments = msgspec.convert(wanted, known.arguments)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The state of the run does not suit {method}: {error}") from error
    given = {name: getattr(arguments, name) for name in known.arguments.__struct_fields__}
    check()
    output = getattr(Steps(tools, check), method)(**given)
    built: dict[str, Any] = msgspec.to_builtins(output, str_keys=True)
    return built


def connector_of(host: str, options: ComputeOptions) -> dict[str, Any]:
    """How the volume service knows this host."""
    return {
        "host": host,
        "ip": options.my_ip,
        "platform": platform.machine(),
        "os_type": "linux",
        "multipath": False,
        "do_local_attach": False,
    }


def root_device_name(guest: Guest, devices: list[BlockDevice]) -> str:
    """The name of the disk that the guest boots from."""
    named = next((device.device_name for device in devices if device.is_root and device.device_name), None)
    return named or guest.server.root_device_name or "/dev/vda"
