"""The console of a simulated guest: what it has written by now is worked out from when it was started."""

from __future__ import annotations

from collections.abc import Iterable

_PARTS = ("acpi", "pci", "clocksource", "virtio_blk", "virtio_net", "ext4", "random", "systemd", "cloud-init", "sshd")


def boot_lines(name: str, hostname: str, addresses: Iterable[str]) -> list[str]:
    """Everything that one boot writes: more than a hundred lines, the last one the login prompt."""
    lines = [
        "SeaBIOS (simulated)",
        "Booting from Hard Disk...",
        "[    0.000000] Linux version 6.12.0-kilonova (simulated) #1 SMP PREEMPT_DYNAMIC",
        "[    0.000000] Command line: root=LABEL=root ro console=tty1 console=ttyS0",
        f"[    0.000012] DMI: Kilonova simulated guest {name}",
    ]
    lines += [f"[    {n * 0.013:.6f}] {_PARTS[n % len(_PARTS)]}: step {n} of 110 done" for n in range(1, 111)]
    lines += [f"ci-info: eth{n} is up with address {address}" for n, address in enumerate(addresses)]
    lines += [f"{name} is ready", "", f"{hostname} login: "]
    return lines


def console_text(
    name: str, hostname: str, *, addresses: Iterable[str], starts: Iterable[float], now: float, boot_seconds: float
) -> bytes:
    """The text at ``now``. ``starts``: when the guest was started, in seconds; each boot adds to what was there."""
    lines = boot_lines(name, hostname, addresses)
    written: list[str] = []
    for start in starts:
        share = 1.0 if boot_seconds <= 0 else max(0.0, (now - start) / boot_seconds)
        written += lines[: max(1, min(len(lines), int(share * len(lines))))]
    return "\n".join(written).encode()
