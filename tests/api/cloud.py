"""A Compute API on real databases (SQLite), with the neighbours played by dummies: what the tests of resources ask.

A request says which version, and who asks: "admin", "member" and "reader" are of one project, "other" of another.
Every answer is checked against the reference's schema of that operation and version, where the reference is there.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import jsonschema
import msgspec
from falcon import testing

from kilonova.api.application import make_application
from kilonova.api.call import Services
from kilonova.api.identity import Identity
from kilonova.api.moments import now
from kilonova.api.options import Options
from kilonova.api.policy import Enforcer
from kilonova.base.context import Context
from kilonova.base.versions import Version
from kilonova.core.flavor import Flavor
from kilonova.core.host import Node
from kilonova.core.server import Server
from kilonova.store import instance_mappings, nodes, servers, services
from kilonova.store.cells import CELL0_UUID, CellMapping, Cells
from kilonova.store.instance_mappings import InstanceMapping
from kilonova.store.session import Database

PROJECT = "6f70656e737461636b20342065766572"
OTHER_PROJECT = "1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c"
NO_PROJECT = "dead" * 8

PEOPLE = {
    "admin": Context(user_id="admin-user", project_id=PROJECT, roles=("admin", "manager", "member", "reader")),
    "member": Context(user_id="member-user", project_id=PROJECT, roles=("member", "reader")),
    "reader": Context(user_id="reader-user", project_id=PROJECT, roles=("reader",)),
    "other": Context(user_id="other-user", project_id=OTHER_PROJECT, roles=("member", "reader")),
}


class DummyKeystone:
    def project_exists(self, project_id: str, *, token: str = "") -> bool:
        return project_id != NO_PROJECT


class DummyPlacement:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.aggregates: dict[str, list[str]] = {}

    def delete_provider(self, uuid: str) -> None:
        self.deleted.append(uuid)

    def ensure_aggregates(self, uuid: str, aggregates: list[str]) -> None:
        self.aggregates[uuid] = aggregates


@dataclasses.dataclass
class Answered:
    """An answer. ``fault`` is the text of a refusal."""

    code: int
    body: Any
    headers: dict[str, str]

    @property
    def fault(self) -> str:
        [inner] = self.body.values()
        return str(inner["message"])


class Cloud:
    """The API with its databases, and what tests put into them."""

    def __init__(
        self, folder: Path, *, reference: Path | None, options: Options | None = None, **neighbours: Any
    ) -> None:
        self.cells = make_cells(folder)
        self.cell = next(mapping.uuid for mapping in self.cells.all() if mapping.uuid != CELL0_UUID)
        self.placement = DummyPlacement()
        self.reference = reference
        parts: dict[str, Any] = dict.fromkeys(("neutron", "cinder", "glance", "conductor", "compute"))
        parts |= {"placement": self.placement, "keystone": DummyKeystone(), **neighbours}
        options = options or Options()
        handed = Services(
            cells=self.cells,
            policy=enforcer(),
            options=options,
            **parts,
        )
        self._application = make_application(handed, options, authenticate=self._who)

    def close(self) -> None:
        self.cells.close()
        self.cells.api.close()

    def break_cell(self) -> None:
        """From now on the cell's database cannot be reached."""
        mapping = self.cells.get(self.cell)
        self.cells.update(msgspec.structs.replace(mapping, database_url="sqlite:////no/such/folder/cell.db"))

    def add_host(self, host: str, *, vcpus: int = 8, stats: dict[str, str] | None = None) -> Node:
        """A nova-compute that is up, mapped into the cell, with one node named like it."""
        node = Node(
            uuid=str(uuid4()),
            name=f"{host}.example",
            host=host,
            hypervisor_type="fake",
            hypervisor_version=1000,
            vcpus=vcpus,
            memory_mb=8192,
            disk_gb=1028,
            memory_mb_used=512,
            cpu_info='{"arch": "x86_64"}',
            stats=stats or {},
        )
        database = self.cells.database(self.cell)
        database.write(lambda tx: services.ensure(tx, "nova-compute", host, 1))
        self.cells.map_host(host, self.cell)
        return database.write(lambda tx: nodes.upsert(tx, node))

    def add_server(self, *, project_id: str = PROJECT, host: str | None = None, zone: str | None = None) -> Server:
        """A server in the cell."""
        server = Server(
            uuid=str(uuid4()),
            project_id=project_id,
            user_id="member-user",
            name="s",
            flavor=Flavor(flavorid="1", name="m1", vcpus=2, memory_mb=256),
            created_at=now(),
            vm_state="active",
            task_state=None,
            host=host,
            node=f"{host}.example" if host else None,
            availability_zone=zone,
        )
        self.cells.database(self.cell).write(lambda tx: servers.insert(tx, server))
        mapping = InstanceMapping(
            server=server.uuid, project_id=project_id, user_id="member-user", created_at=now(), cell=self.cell
        )
        self.cells.api.write(lambda tx: instance_mappings.insert(tx, mapping))
        return server

    def _who(self, environ: dict[str, Any]) -> Identity:
        return Identity(PEOPLE[environ["HTTP_X_AUTH_TOKEN"]], environ["HTTP_X_AUTH_TOKEN"])

    def get(self, path: str, version: str = "2.1", *, who: str = "admin") -> Answered:
        return self.ask("GET", path, version, who=who)

    def post(self, path: str, version: str, body: Any, *, who: str = "admin") -> Answered:
        return self.ask("POST", path, version, body, who=who)

    def put(self, path: str, version: str, body: Any, *, who: str = "admin") -> Answered:
        return self.ask("PUT", path, version, body, who=who)

    def delete(self, path: str, version: str = "2.1", *, who: str = "admin") -> Answered:
        return self.ask("DELETE", path, version, who=who)

    def ask(self, method: str, path: str, version: str, body: Any = None, *, who: str = "admin") -> Answered:
        """One request through the whole edge."""
        answer = testing.TestClient(self._application).simulate_request(
            method,
            "/v2.1" + path.partition("?")[0],
            query_string=path.partition("?")[2],
            body=None if body is None else json.dumps(body),
            headers={
                "OpenStack-API-Version": f"compute {version}",
                "X-Auth-Token": who,
                **({} if body is None else {"Content-Type": "application/json"}),
            },
        )
        content = json.loads(answer.content) if answer.content else None
        if answer.status_code < 300 and self.reference is not None:
            self._check(method, path.partition("?")[0], version, content, action=body)
        return Answered(answer.status_code, content, dict(answer.headers))

    def _check(self, method: str, path: str, version: str, content: Any, *, action: Any) -> None:
        assert self.reference is not None
        schema = schema_of(self.reference, method, path, version, action=action)
        if schema is not None:
            formats = jsonschema.FormatChecker(["ipv4", "ipv6", "uuid"])
            jsonschema.Draft202012Validator(schema, format_checker=formats).validate(content)


def schema_of(reference: Path, method: str, path: str, version: str, *, action: Any) -> dict[str, Any] | None:
    """The reference's schema of an answer; None where it has none (our own resources)."""
    key = next(iter(action)) if path.endswith("/action") else None
    for entry in _index(reference):
        form = "/v2.1" + re.sub(r"{\w+}", "[^/]+", entry["path"]).removeprefix("/v2.1")
        least, most = entry["min"] or "2.1", entry["max"] or "2.999"
        if (
            entry["kind"] == "response"
            and entry["method"] == method
            and entry.get("action") in (None, key)
            and ("{" not in entry["path"]) == (entry["path"] == path)
            and re.fullmatch(form, "/v2.1" + path)
            and Version.parse(least) <= Version.parse(version) <= Version.parse(most)
        ):
            found: dict[str, Any] = json.loads((reference / entry["file"]).read_text())
            return found
    return None


def make_cells(folder: Path) -> Cells:
    """An API database, cell0 and one cell, in files: copies of empty ones, which are made once."""
    for name, schema in (("api", "api"), ("cell0", "cell"), ("cell1", "cell")):
        shutil.copy(empty_databases() / f"{schema}.db", folder / f"{name}.db")
    api = Database(f"sqlite:///{folder}/api.db", schema="api", name="api")
    cells = Cells(api, open_database=lambda mapping: Database(mapping.database_url, schema="cell", reach=0.1))
    for uuid, name in ((CELL0_UUID, "cell0"), (str(uuid4()), "cell1")):
        url = f"sqlite:///{folder}/{name}.db"
        cells.add(CellMapping(uuid=uuid, name=name, transport_url="", database_url=url))
    return cells


@functools.cache
def empty_databases() -> Path:
    """A folder with an empty database of each schema."""
    folder = Path(tempfile.mkdtemp(prefix="kilonova-empty-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    schemas: tuple[Literal["api", "cell"], ...] = ("api", "cell")
    for schema in schemas:
        database = Database(f"sqlite:///{folder}/{schema}.db", schema=schema)
        database.sync()
        database.close()
    return folder


@functools.cache
def enforcer() -> Enforcer:
    """The default policy, read once."""
    return Enforcer()


_indexes: dict[Path, list[dict[str, Any]]] = {}


def _index(reference: Path) -> list[dict[str, Any]]:
    if reference not in _indexes:
        _indexes[reference] = json.loads((reference / "schemas" / "index.json").read_text())
    return _indexes[reference]
