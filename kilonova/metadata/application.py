"""The metadata service as a WSGI application: from a path and an asker to a document or an index.

The trees are in `kilonova.core.metadata_documents`; here are paths, status codes, the password and vendor data.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable
from typing import Protocol

import falcon
import msgspec

from kilonova.core import metadata_documents as documents
from kilonova.core.metadata import InstanceMetadata, Json
from kilonova.metadata.identity import Asker, Lookup, Memory, Refused

LOG = logging.getLogger(__name__)
PASSWORD_BYTES = 4 * 255
SEED_BYTES = 512
TEXT = "text/plain; charset=utf-8"


class VendorData(Protocol):
    """The operator's additions; asked only when a guest wants a vendor data document."""

    def static(self) -> dict[str, Json]:
        """The operator's file, {} without one."""
        ...

    def dynamic(self, record: InstanceMetadata) -> dict[str, Json]:
        """What the vendor data services answer about this server, by target name."""
        ...


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`behind_proxy` is [neutron] service_metadata_proxy; `cache_seconds` [api] metadata_cache_expiration."""

    behind_proxy: bool = True
    cache_seconds: float = 15.0
    today: Callable[[], str] = _today


class Answer(msgspec.Struct, frozen=True):
    """A body and its type."""

    body: bytes
    content_type: str = TEXT


class Trees:
    """Walks the paths of the metadata trees for one asker at a time."""

    def __init__(self, lookup: Lookup, vendor: VendorData | None, memory: Memory, today: Callable[[], str]) -> None:
        self._lookup = lookup
        self._vendor = vendor
        self._memory = memory
        self._today = today

    def get(self, record: InstanceMetadata, path: list[str]) -> Answer:
        """The document or index at this path, or Refused with 404."""
        if path[:1] == ["openstack"]:
            return self._openstack(record, path[1:])
        return self._ec2(record, path[1:] if path[:1] == ["ec2"] else path)

    def _openstack(self, record: InstanceMetadata, path: list[str]) -> Answer:
        if not path:
            today = self._today()
            return _index([v for v in documents.OPENSTACK_VERSIONS if v <= today] + [documents.LATEST])
        version, *rest = path
        if version == "content":
            return _content(record, rest)
        if version not in (*documents.OPENSTACK_VERSIONS, documents.LATEST):
            raise _nothing()
        if not rest:
            return _index(_openstack_index(record, version))
        if len(rest) > 1:
            raise _nothing()
        name = rest[0]
        if name == "password" and documents.has("password", version):
            return Answer(record.password.encode())
        if name.startswith("vendor_data"):
            record = self._with_vendor_data(record, dynamic=name == "vendor_data2.json")
        body = documents.openstack_documents(record, version, seed=os.urandom(SEED_BYTES)).get(name)
        if body is None:
            raise _nothing()
        return Answer(body, "application/json" if name.endswith(".json") else TEXT)

    def _with_vendor_data(self, record: InstanceMetadata, *, dynamic: bool) -> InstanceMetadata:
        if self._vendor is None:
            return record
        record = msgspec.structs.replace(record, vendor_static=self._vendor.static())
        if dynamic and not record.vendor_dynamic:
            record = msgspec.structs.replace(record, vendor_dynamic=self._vendor.dynamic(record))
            self._memory.replace(record)
        return record

    def _ec2(self, record: InstanceMetadata, path: list[str]) -> Answer:
        if not path:
            return _index([*documents.EC2_VERSIONS, documents.LATEST])
        version, *rest = path
        if version not in (*documents.EC2_VERSIONS, documents.LATEST):
            raise _nothing()
        if not rest:
            return _index(["meta-data/"] + (["user-data"] if record.user_data is not None else []))
        if rest == ["user-data"] and record.user_data is not None:
            return Answer(record.user_data)
        if rest[0] != "meta-data":
            raise _nothing()
        if rest[1:] == ["public-keys"] and record.key is not None:
            return _index([f"0={record.key.name}"])
        node: str | documents.Tree = documents.ec2_meta_data(record, version)
        for part in rest[1:]:
            if isinstance(node, str) or part not in node:
                raise _nothing()
            node = node[part]
        return Answer((node if isinstance(node, str) else documents.ec2_listing(node)).encode())

    def post_password(self, record: InstanceMetadata, path: list[str], body: bytes) -> None:
        """Store what a guest posts as its password, once."""
        if len(path) != 3 or path[0] != "openstack" or path[2] != "password":
            raise Refused(405, "Only a password can be posted.")
        version = path[1]
        known = version in (*documents.OPENSTACK_VERSIONS, documents.LATEST)
        if not known or not documents.has("password", version):
            raise _nothing()
        if len(body) > PASSWORD_BYTES:
            raise Refused(400, f"A password has at most {PASSWORD_BYTES} bytes.")
        try:
            text = body.decode("ascii")
        except UnicodeDecodeError:
            raise Refused(400, "A password is posted encrypted, as base64 text.") from None
        if record.password or not self._lookup.save_password(record.uuid, text):
            raise Refused(409, "A password is stored already.")
        self._memory.replace(msgspec.structs.replace(record, password=text))


def _nothing() -> Refused:
    return Refused(404, "There is nothing at this path.")


def _index(names: list[str]) -> Answer:
    return Answer("\n".join(names).encode())


def _openstack_index(record: InstanceMetadata, version: str) -> list[str]:
    names = ["meta_data.json", "user_data", "password", "vendor_data.json", "network_data.json", "vendor_data2.json"]
    return [n for n in names if documents.has(n, version) and (n != "user_data" or record.user_data is not None)]


def _content(record: InstanceMetadata, path: list[str]) -> Answer:
    files = dict(zip(documents.content_names(record), record.files, strict=True))
    if len(path) != 1 or path[0] not in files:
        raise _nothing()
    return Answer(files[path[0]].content, "application/octet-stream")


class _Edge:
    """Falcon's side: one sink for every path."""

    def __init__(self, asker: Asker, trees: Trees) -> None:
        self._asker = asker
        self._trees = trees

    def __call__(self, req: falcon.Request, resp: falcon.Response, **_: object) -> None:
        request, response = req, resp
        path = [part for part in request.path.split("/") if part]
        if not path:
            # Neutron's and operators' health checks ask here without naming a server.
            response.content_type = TEXT
            response.data = _index([*documents.EC2_VERSIONS, documents.LATEST]).body
            return
        record = self._asker.find(request.headers, request.remote_addr)
        if request.method in ("GET", "HEAD"):
            answer = self._trees.get(record, path)
            response.content_type = answer.content_type
            response.data = answer.body
        elif request.method == "POST":
            body = request.bounded_stream.read(PASSWORD_BYTES + 1)
            self._trees.post_password(record, path, body)
        else:
            raise Refused(405, "Metadata is read with GET; a password is stored with POST.")


def _refuse(request: falcon.Request, response: falcon.Response, refused: Refused, params: object) -> None:
    response.status = refused.status
    response.content_type = TEXT
    response.text = refused.text + "\n"


def _fail(request: falcon.Request, response: falcon.Response, error: Exception, params: object) -> None:
    LOG.error("metadata request for %s failed", request.path, exc_info=error)
    response.status = 500
    response.content_type = TEXT
    response.text = "The metadata service failed; please try again.\n"


def make_application(
    lookup: Lookup, secret: str, options: Options | None = None, *, vendor: VendorData | None = None
) -> falcon.App[falcon.Request, falcon.Response]:
    """The WSGI application. `secret` is [neutron] metadata_proxy_shared_secret."""
    options = options or Options()
    memory = Memory(options.cache_seconds)
    asker = Asker(lookup, secret, behind_proxy=options.behind_proxy, memory=memory)
    application = falcon.App()
    application.add_error_handler(Exception, _fail)
    application.add_error_handler(Refused, _refuse)
    application.add_sink(_Edge(asker, Trees(lookup, vendor, memory, options.today)), prefix="/")
    return application
