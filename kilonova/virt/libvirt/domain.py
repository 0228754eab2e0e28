"""The domain of a guest, from typed records to libvirt's XML. No text is pasted together here."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from kilonova.core.network import Nic
from kilonova.core.server import Server

NAMESPACE: Final = "https://kilonova.dev/xmlns/instance/1"
ET.register_namespace("kilonova", NAMESPACE)
QEMU: Final = "http://libvirt.org/schemas/domain/qemu/1.0"
ET.register_namespace("qemu", QEMU)


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk of a domain. ``source`` is a file or block device; ``target`` such as vda."""

    source: str
    target: str
    form: str = "qcow2"
    bus: str = "virtio"
    serial: str | None = None
    read_only: bool = False
    boot_order: int | None = None
    shareable: bool = False
    is_block: bool = False


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """A guest as libvirt is to have it. ``memory_mb`` MiB. ``user_network``: QEMU's own network instead of bridges; its
    first NIC's ssh is forwarded from ``ssh_port`` of the loopback address."""

    name: str
    server: Server
    virt_type: str
    machine: str
    cpu_mode: str | None
    cpu_model: str | None
    disks: list[Disk]
    nics: list[Nic]
    console_log: str
    user_network: bool = False
    ssh_port: int | None = None
    kernel: str | None = None
    ramdisk: str | None = None
    command_line: str | None = None
    emulator: str = "/usr/bin/qemu-system-x86_64"


def to_xml(domain: Domain) -> str:
    """The XML for libvirt's defineXML."""
    server, flavor = domain.server, domain.server.flavor
    root = ET.Element("domain", type=domain.virt_type)
    _text(root, "name", domain.name)
    _text(root, "uuid", server.uuid)
    _metadata(root, server)
    _text(root, "memory", str(flavor.memory_mb), unit="MiB")
    _text(root, "vcpu", str(flavor.vcpus))
    _sysinfo(root, server)
    _os(root, domain)
    features = ET.SubElement(root, "features")
    for name in ("acpi", "apic"):
        ET.SubElement(features, name)
    _cpu(root, domain)
    _clock(root)
    for name, action in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        _text(root, name, action)
    _devices(ET.SubElement(root, "devices"), domain)
    if domain.user_network:
        _user_network(root, domain)
    return ET.tostring(root, encoding="unicode")


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _metadata(root: ET.Element, server: Server) -> None:
    """Marks the domain as ours, for whoever lists domains."""
    instance = ET.SubElement(ET.SubElement(root, "metadata"), f"{{{NAMESPACE}}}instance")
    for tag, text in (("name", server.name), ("project", server.project_id), ("flavor", server.flavor.name)):
        ET.SubElement(instance, f"{{{NAMESPACE}}}{tag}").text = text


def _sysinfo(root: ET.Element, server: Server) -> None:
    system = ET.SubElement(ET.SubElement(root, "sysinfo", type="smbios"), "system")
    facts = (
        ("manufacturer", "OpenStack Foundation"),
        ("product", "OpenStack Nova"),
        ("serial", server.uuid),
        ("uuid", server.uuid),
        ("family", "Virtual Machine"),
    )
    for name, text in facts:
        _text(system, "entry", text, name=name)


def _os(root: ET.Element, domain: Domain) -> None:
    os = ET.SubElement(root, "os")
    _text(os, "type", "hvm", arch="x86_64", machine=domain.machine)
    if domain.kernel is not None:
        _text(os, "kernel", domain.kernel)
        if domain.ramdisk is not None:
            _text(os, "initrd", domain.ramdisk)
        _text(os, "cmdline", domain.command_line or "root=/dev/vda console=ttyS0")
    ET.SubElement(os, "smbios", mode="sysinfo")


def _cpu(root: ET.Element, domain: Domain) -> None:
    if domain.cpu_mode is None:
        return
    cpu = ET.SubElement(root, "cpu", mode=domain.cpu_mode)
    if domain.cpu_mode == "custom" and domain.cpu_model:
        cpu.set("match", "exact")
        _text(cpu, "model", domain.cpu_model, fallback="allow")


def _clock(root: ET.Element) -> None:
    clock = ET.SubElement(root, "clock", offset="utc")
    for name, policy in (("pit", "delay"), ("rtc", "catchup")):
        ET.SubElement(clock, "timer", name=name, tickpolicy=policy)
    ET.SubElement(clock, "timer", name="hpet", present="no")


def _devices(devices: ET.Element, domain: Domain) -> None:
    _text(devices, "emulator", domain.emulator)
    for disk in domain.disks:
        _disk(devices, disk)
    for nic in domain.nics if not domain.user_network else ():
        _nic(devices, nic)
    serial = ET.SubElement(devices, "serial", type="pty")
    ET.SubElement(serial, "log", file=domain.console_log, append="on")
    ET.SubElement(serial, "target", port="0")
    ET.SubElement(ET.SubElement(devices, "console", type="pty"), "target", type="serial", port="0")
    channel = ET.SubElement(devices, "channel", type="unix")
    ET.SubElement(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    ET.SubElement(devices, "graphics", type="vnc", autoport="yes", listen="127.0.0.1")
    ET.SubElement(ET.SubElement(devices, "video"), "model", type="vga")
    ET.SubElement(devices, "memballoon", model="virtio")
    rng = ET.SubElement(devices, "rng", model="virtio")
    _text(rng, "backend", "/dev/urandom", model="random")


def _disk(devices: ET.Element, disk: Disk) -> None:
    element = ET.SubElement(devices, "disk", type="block" if disk.is_block else "file", device="disk")
    ET.SubElement(element, "driver", name="qemu", type=disk.form, cache="none" if disk.is_block else "writeback")
    ET.SubElement(element, "source", {"dev" if disk.is_block else "file": disk.source})
    ET.SubElement(element, "target", dev=disk.target, bus=disk.bus)
    if disk.serial is not None:
        _text(element, "serial", disk.serial[:36])
    if disk.boot_order is not None:
        ET.SubElement(element, "boot", order=str(disk.boot_order))
    if disk.read_only:
        ET.SubElement(element, "readonly")
    if disk.shareable:
        ET.SubElement(element, "shareable")


def _user_network(root: ET.Element, domain: Domain) -> None:
    """QEMU's own network, said to QEMU itself: libvirt's words for it know no forwarded ports."""
    line = ET.SubElement(root, f"{{{QEMU}}}commandline")
    for number, nic in enumerate(domain.nics):
        forward = f",hostfwd=tcp:127.0.0.1:{domain.ssh_port}-:22" if number == 0 and domain.ssh_port else ""
        device = f"virtio-net-pci,netdev=user{number},mac={nic.mac},addr=0x{0x18 + number:x}"
        for word in ("-netdev", f"user,id=user{number}{forward}", "-device", device):
            ET.SubElement(line, f"{{{QEMU}}}arg", value=word)


def _nic(devices: ET.Element, nic: Nic) -> None:
    element = ET.SubElement(devices, "interface", type="bridge")
    ET.SubElement(element, "source", bridge=nic.bridge)
    ET.SubElement(element, "target", dev=nic.device)
    if nic.mtu:
        ET.SubElement(element, "mtu", size=str(nic.mtu))
    ET.SubElement(element, "mac", address=nic.mac)
    ET.SubElement(element, "model", type="virtio")


def is_ours(xml: str, instances: str) -> bool:
    """Whether a domain carries our mark, and writes its console below this folder: another cloud may share libvirt."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirt's own answer
    log = root.find("devices/serial/log")
    if log is None or not str(log.get("file")).startswith(f"{instances}/"):
        return False
    return root.find(f"metadata/{{{NAMESPACE}}}instance") is not None
