"""Ports, secrets and configuration files."""

import configparser
import json
from pathlib import Path

import pytest

from kilonova.embedded.ports import Ports
from kilonova.embedded.prefix import VARIABLE, find_prefix
from kilonova.embedded.secret import USERS, ensure_secrets
from kilonova.embedded.settings import Site, write_settings


def site(state: Path, offset: int = 0) -> Site:
    ports = Ports.moved(offset)
    return Site(state, Path("/prefix"), ports, ports.url("nova", "/v2.1"), ensure_secrets(state / "secrets.json"))


def test_ports_move_together_and_stay_ports() -> None:
    assert Ports.moved(7) == Ports(15007, 19299, 18785, 19703, 18783, 18781, 18782)
    assert Ports().url("keystone", "/v3") == "http://127.0.0.1:15000/v3"
    with pytest.raises(ValueError, match="puts glance on port 69292"):
        Ports.moved(50000)


def test_secrets_are_drawn_once_differ_and_are_private(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    first = ensure_secrets(path)
    assert ensure_secrets(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(set(first.values())) == len(first) >= len(USERS)
    path.write_text(json.dumps({"admin": "kept"}))
    assert ensure_secrets(path)["admin"] == "kept"
    assert ensure_secrets(path)["demo"] != first["demo"]


def test_every_file_with_a_password_is_private_and_follows_the_ports(tmp_path: Path) -> None:
    write_settings(site(tmp_path))
    write_settings(site(tmp_path, 100))
    passwords = ensure_secrets(tmp_path / "secrets.json").values()
    holders = [
        path
        for path in (tmp_path / "etc").rglob("*")
        if path.is_file() and any(secret in path.read_text() for secret in passwords)
    ]
    assert {path.name for path in holders} == {
        "glance-api.conf",
        "placement.conf",
        "neutron.conf",
        "cinder.conf",
        "identity.json",
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in [*holders, *(tmp_path / "etc").glob("neighbours/*-keys/*")])
    neutron = configparser.ConfigParser(interpolation=None)
    neutron.read(tmp_path / "etc" / "neighbours" / "neutron.conf")
    assert neutron["nova"]["auth_url"] == "http://127.0.0.1:15100/v3"
    catalog = json.loads((tmp_path / "etc" / "neighbours" / "identity.json").read_text())["catalog"]
    assert {"type": "compute", "name": "nova", "url": "http://127.0.0.1:18874/v2.1"} in catalog


def test_keys_survive_a_second_configuration(tmp_path: Path) -> None:
    write_settings(site(tmp_path))
    key = tmp_path / "etc" / "neighbours" / "fernet-keys" / "1"
    before = key.read_text()
    write_settings(site(tmp_path))
    assert key.read_text() == before


def test_the_prefix_is_given_or_named_or_beside_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "named"))
    assert find_prefix(tmp_path / "given") == tmp_path / "given"
    assert find_prefix() == tmp_path / "named"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    assert find_prefix() == tmp_path / "venv-neighbours"
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "keystone-manage").touch()
    assert find_prefix() == tmp_path / "venv"
