"""A composed cloud for tests: ``kilonova up`` with simulated hosts, and ways to talk to it and to hurt it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import requests
import yaml
from keystoneauth1 import exceptions as ksa
from keystoneauth1.identity import v3
from keystoneauth1.session import Session
from requests.adapters import HTTPAdapter

T = TypeVar("T")

BIN = Path(sys.executable).parent
UP_SECONDS = 240.0
LATEST = "2.96"
OFFSET = int(os.environ.get("KILONOVA_TEST_OFFSET", "1700"))
PORTS = {"keystone": 15000, "placement": 18778, "neutron": 19696, "cinder": 18776, "nova": 18774, "glance": 19292}
PATHS = {"placement": "", "neutron": "/v2.0", "cinder": "/v3", "nova": "/v2.1", "glance": "/v2", "keystone": "/v3"}


class Answer(NamedTuple):
    """What a service said. ``body`` is decoded JSON, or text."""

    status: int
    body: Any
    headers: Any

    @property
    def fault(self) -> str:
        """The key of the fault, "" when it is none."""
        return next(iter(self.body), "") if self.status >= 400 and isinstance(self.body, dict) else ""

    @property
    def message(self) -> str:
        """The text of the fault."""
        return str(self.body[self.fault]["message"]) if self.fault else ""


def wait_for(look: Callable[[], T], *, what: str, seconds: float = 60.0, every: float = 0.05) -> T:
    """The first answer of ``look`` that is true; AssertionError with the last one after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what} (last seen: {found!r})"
        time.sleep(every)


class User:
    """One of the users of clouds.yaml, talking plain HTTP."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        self._cloud = cloud
        auth = yaml.safe_load((cloud.state / "clouds.yaml").read_text())["clouds"][name]["auth"]
        http = requests.Session()
        http.mount("http://", HTTPAdapter(pool_maxsize=64))
        self._session = Session(v3.Password(**auth), session=http, timeout=120)

    @property
    def project(self) -> str:
        """Its project's id."""
        return str(self._session.get_project_id())

    @property
    def token(self) -> str:
        """A token."""
        return str(self._session.get_token())

    def call(self, method: str, path: str, body: Any = None, *, mv: str = LATEST, service: str = "nova") -> Answer:
        """A request; keystoneauth's ConnectFailure and kin when nobody answers."""
        headers = {"Accept": "application/json"}
        if service in ("nova", "cinder", "placement"):
            version = {"nova": f"compute {mv}", "cinder": "volume 3.70", "placement": "placement 1.36"}[service]
            headers["OpenStack-API-Version"] = version
        url = self._cloud.url(service) + path
        answer = self._session.request(url, method, json=body, headers=headers, raise_exc=False)
        try:
            decoded = answer.json() if answer.content else None
        except json.JSONDecodeError:
            decoded = answer.text
        return Answer(answer.status_code, decoded, answer.headers)

    def get(self, path: str, *, mv: str = LATEST, service: str = "nova") -> Any:
        """The body of a GET that must succeed."""
        answer = self.call("GET", path, mv=mv, service=service)
        assert answer.status == 200, answer
        return answer.body

    def post(self, path: str, body: Any, *, mv: str = LATEST, service: str = "nova") -> Any:
        """The body of a POST that must succeed."""
        answer = self.call("POST", path, body, mv=mv, service=service)
        assert answer.status in (200, 201, 202), answer
        return answer.body

    def set_quota(self, project: str, **limits: int) -> None:
        """As administrator: limits of a project; what is not named is as good as unlimited."""
        lifted = dict.fromkeys(("instances", "cores", "ram", "server_groups", "server_group_members"), -1)
        answer = self.call("PUT", f"/os-quota-sets/{project}", {"quota_set": {**lifted, **limits, "force": True}})
        assert answer.status == 200, answer

    # --- servers

    def wanted(self, name: str, **more: Any) -> dict[str, Any]:
        """The body of a create: m1.nano, the placeholder image and the private network where ``more`` names none."""
        server = {"name": name, "flavorRef": "42", "imageRef": self._cloud.image, "networks": self._cloud.networks}
        hints = more.pop("hints", None)
        server = {k: v for k, v in (server | more).items() if v is not None}
        return {"server": server} | ({"os:scheduler_hints": hints} if hints else {})

    def create(self, name: str, *, mv: str = LATEST, **more: Any) -> str:
        """Ask for a server; its id."""
        return str(self.post("/servers", self.wanted(name, **more), mv=mv)["server"]["id"])

    def boot(self, name: str, **more: Any) -> dict[str, Any]:
        """A server that has become ACTIVE, as shown."""
        return self.await_status(self.create(name, **more), "ACTIVE")

    def show(self, server: str, *, mv: str = LATEST) -> dict[str, Any]:
        """A server."""
        found: dict[str, Any] = self.get(f"/servers/{server}", mv=mv)["server"]
        return found

    def await_status(self, server: str, status: str, seconds: float = 60.0) -> dict[str, Any]:
        """The server once its status is as named and nothing is under way; an unexpected ERROR is shown at once."""

        def look() -> dict[str, Any] | None:
            found = self.show(server)
            if found["status"] == "ERROR" and status != "ERROR" and found["OS-EXT-STS:task_state"] is None:
                raise AssertionError(f"{server} is in ERROR: {found.get('fault')}")
            settled = found["OS-EXT-STS:task_state"] is None
            return found if found["status"] == status and settled else None

        return wait_for(look, what=f"server {server} is {status}", seconds=seconds)  # type: ignore[return-value]

    def act(self, server: str, name: str, argument: Any = None, *, mv: str = LATEST) -> Answer:
        """An action."""
        return self.call("POST", f"/servers/{server}/action", {name: argument}, mv=mv)

    def delete(self, server: str, seconds: float = 60.0) -> None:
        """Delete and wait until it is gone."""
        assert self.call("DELETE", f"/servers/{server}").status in (204, 404)
        self.await_gone(server, seconds)

    def await_gone(self, server: str, seconds: float = 60.0) -> None:
        """Until the server is not found."""
        wait_for(
            lambda: self.call("GET", f"/servers/{server}").status == 404, what=f"{server} is gone", seconds=seconds
        )

    # --- volumes and ports

    def bootable(self) -> str:
        """A volume that a server can boot from, available."""
        return self.volume(imageRef=self._cloud.image)

    def volume(self, *, size: int = 1, **more: Any) -> str:
        """A volume that is available."""
        body = {"volume": {"size": size, **more}}
        made = str(self.post(f"/{self.project}/volumes", body, service="cinder")["volume"]["id"])
        self.await_volume(made, "available")
        return made

    def show_volume(self, volume: str) -> dict[str, Any]:
        """A volume."""
        found: dict[str, Any] = self.get(f"/{self.project}/volumes/{volume}", service="cinder")["volume"]
        return found

    def await_volume(self, volume: str, status: str, seconds: float = 60.0) -> None:
        """Until the volume's status is as named."""
        wait_for(lambda: self.show_volume(volume)["status"] == status, what=f"volume is {status}", seconds=seconds)

    def delete_volume(self, volume: str) -> None:
        """Delete a volume."""
        assert self.call("DELETE", f"/{self.project}/volumes/{volume}", service="cinder").status in (202, 404)

    def attachments(self, volume: str) -> list[Any]:
        """The attachments of a volume."""
        found: list[Any] = self.get(f"/{self.project}/attachments?volume_id={volume}", service="cinder")["attachments"]
        return found

    def port(self, **more: Any) -> str:
        """A port of ours on the private network."""
        body = {"port": {"network_id": self._cloud.network, **more}}
        return str(self.post("/ports", body, service="neutron")["port"]["id"])

    def ports(self, server: str) -> list[dict[str, Any]]:
        """The ports of a server."""
        found: list[dict[str, Any]] = self.get(f"/ports?device_id={server}", service="neutron")["ports"]
        return found


class Cloud:
    """One state directory. ``up`` begins or goes on; ``kill`` is SIGKILL on the main process."""

    def __init__(self, state: Path, *, offset: int, hosts: int = 3, driver: str = "fake") -> None:
        self.state, self.offset, self.hosts, self.driver = state, offset, hosts, driver
        self.pid = 0

    def url(self, service: str) -> str:
        """Where a service is."""
        return f"http://127.0.0.1:{PORTS[service] + self.offset}{PATHS[service]}"

    def up(self) -> float:
        """Bring it up; the seconds that took."""
        begun = time.monotonic()
        words = ["up", "--state-dir", self.state, "--driver", self.driver, "--hosts", self.hosts]
        done = self.kilonova(*words, "--port-offset", self.offset, "--detach", seconds=UP_SECONDS)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.log_tail()}"
        self.pid = int(json.loads((self.state / "run" / "kilonova.pid").read_text())["pid"])
        return time.monotonic() - begun

    def down(self) -> None:
        """End it and remove everything; with KILONOVA_TEST_KEEP set the state stays, to be looked at."""
        wipe = [] if os.environ.get("KILONOVA_TEST_KEEP") else ["--wipe"]
        self.kilonova("down", "--state-dir", self.state, *wipe, seconds=120)

    def kill(self) -> None:
        """SIGKILL; its children go with it."""
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: not _lives(self.pid), what="the main process is gone", seconds=10)

    def kilonova(self, *words: object, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """The ``kilonova`` command."""
        command = [str(BIN / "kilonova"), *(str(word) for word in words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)

    def openstack(self, *words: str, cloud: str = "kilonova-demo", seconds: float = 120.0) -> str:
        """The ordinary ``openstack`` client; what it prints."""
        env = {**os.environ, "OS_CLIENT_CONFIG_FILE": str(self.state / "clouds.yaml"), "OS_CLOUD": cloud}
        command = [str(BIN / "openstack"), *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=seconds)
        assert done.returncode == 0, f"openstack {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def user(self, name: str = "kilonova-demo") -> User:
        """Somebody."""
        return User(self, name)

    def discover(self) -> None:
        """Learn the ids that every test needs, and lift the plain user's quota."""
        somebody = self.user()
        self.image = somebody.get("/images", service="glance")["images"][0]["id"]
        self.network = somebody.get("/networks?name=private", service="neutron")["networks"][0]["id"]
        self.networks = [{"uuid": self.network}]
        self.user("kilonova").set_quota(somebody.project)

    def log_tail(self, lines: int = 40) -> str:
        """The end of our own log."""
        log = self.state / "logs" / "kilonova.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def child(self, name: str) -> int:
        """The pid of a neighbour."""
        return int(json.loads((self.state / "run" / f"{name}.json").read_text())["pid"])

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """The neighbour does not answer, though it takes connections."""
        pid = self.child(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def boot_from(volume: str) -> dict[str, Any]:
    """What a create says to boot from an existing volume."""
    device = {"boot_index": 0, "uuid": volume, "source_type": "volume", "destination_type": "volume"}
    return {"imageRef": None, "block_device_mapping_v2": [device]}


def boot_from_new(image: str, *, size: int = 1, keep: bool = False) -> dict[str, Any]:
    """What a create says to boot from a volume made of an image; it goes with the server unless ``keep``."""
    device = {"boot_index": 0, "uuid": image, "source_type": "image", "destination_type": "volume"}
    more = {"volume_size": size, "delete_on_termination": not keep}
    return {"imageRef": None, "block_device_mapping_v2": [{**device, **more}]}


UNREACHABLE = (ksa.ConnectFailure, ksa.ConnectTimeout, ksa.UnknownConnectionError, ksa.RetriableConnectionFailure)
"""What a client meets when the cloud dies under its request."""
