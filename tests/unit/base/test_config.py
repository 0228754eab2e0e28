"""Options as operators write them in a nova.conf, and as services get them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kilonova.base import config
from kilonova.base.config import BadConfig, group, load, option, read, sample


@group("libvirt_of_test")
class LibvirtOptions:
    bandwidth: int = option(0, min=0, max=100, help="MiB/s for a live migration.")
    virt_type: str = option("kvm", choices=["kvm", "qemu"], help="What runs the guests.")
    cpu_models: list[str] = option([], help="Models.", deprecated=["cpu_model"])
    snapshot: bool = option(True, help="Whether.")
    password: str | None = option(None, secret=True, help="Secret.")
    ratio: float = option(1.5, help="Ratio.")
    connection: str = option("test:///default", url=True, help="Where.")
    devices: list[str] = option([], multi=True, help="May be given more than once.")


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "nova.conf"
    path.write_text(text)
    return path


def test_defaults_and_values(tmp_path: Path) -> None:
    text = "[libvirt_of_test]\nbandwidth = 7\ncpu_models = a,b\nsnapshot = no\ndevices = x=1,y\ndevices = z\n"
    options = read(LibvirtOptions, load([_file(tmp_path, text)]))
    assert (options.bandwidth, options.cpu_models, options.snapshot) == (7, ["a", "b"], False)
    assert options.devices == ["x=1,y", "z"]
    assert (options.virt_type, options.ratio, options.password) == ("kvm", 1.5, None)
    assert LibvirtOptions(bandwidth=3).bandwidth == 3


def test_old_names_are_read(tmp_path: Path) -> None:
    options = read(LibvirtOptions, load([_file(tmp_path, "[libvirt_of_test]\ncpu_model = q\n")]))
    assert options.cpu_models == ["q"]


@pytest.mark.parametrize(
    "line, name",
    [("bandwidth = 101", "bandwidth"), ("bandwidth = x", "bandwidth"), ("virt_type = xen", "virt_type")],
)
def test_a_value_that_does_not_fit_is_named(tmp_path: Path, line: str, name: str) -> None:
    conf = load([_file(tmp_path, f"[libvirt_of_test]\n{line}\n")])
    with pytest.raises(BadConfig, match=name):
        read(LibvirtOptions, conf)


def test_a_missing_or_broken_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"absent\.conf"):
        load([tmp_path / "absent.conf"])
    with pytest.raises(BadConfig, match=r"nova\.conf"):
        load([_file(tmp_path, "no section here\n")])


def test_unknown_options_are_reported_with_the_nearest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "[libvirt_of_test]\nbandwith = 7\n[neutron_of_nobody]\nx = 1\n"
    with caplog.at_level(logging.WARNING):
        load([_file(tmp_path, text)])
    assert [r.getMessage() for r in caplog.records if "libvirt_of_test" in r.getMessage()] == [
        f"{tmp_path}/nova.conf: [libvirt_of_test] bandwith is not an option that is known here; did you mean bandwidth?"
    ]


def test_overrides_stand_over_files_and_reach_late_options(tmp_path: Path) -> None:
    conf = load(
        [_file(tmp_path, "[libvirt_of_test]\nbandwidth = 7\n")],
        override={"libvirt_of_test.bandwidth": 9, "late_of_test.x": "y"},
    )

    @group("late_of_test")
    class Late:
        x: str = option("", help="Late.")

    assert read(LibvirtOptions, conf).bandwidth == 9
    assert read(Late, conf).x == "y"


def test_secrets_are_not_printed() -> None:
    options = LibvirtOptions(password="hunter2", connection="qemu+tcp://user:pass@host/system")
    assert "hunter2" not in repr(options)
    assert "pass@" not in repr(options)
    assert "***@host" in repr(options)


def test_rereading(tmp_path: Path) -> None:
    path = _file(tmp_path, "[libvirt_of_test]\nbandwidth = 7\n")
    conf = load([path])
    path.write_text("[libvirt_of_test]\nbandwidth = 8\n")
    config.reread(conf)
    assert read(LibvirtOptions, conf).bandwidth == 8


def test_the_sample_reads_back_as_the_defaults(tmp_path: Path) -> None:
    text = sample([LibvirtOptions])
    assert "# At least 0, at most 100" in text
    uncommented = "\n".join(
        line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in text.splitlines()
    )
    kept = "\n".join(line for line in uncommented.splitlines() if line.rstrip()[-1:] != "=")
    assert read(LibvirtOptions, load([_file(tmp_path, kept)])) == LibvirtOptions()
