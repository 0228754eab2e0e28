"""POST /servers: everything is looked up and checked first, volumes are reserved, then one transaction makes it so.

The answer is given when build requests and the run that will schedule them are committed together. A create that is
refused leaves nothing behind: no record, no quota used, no volume reserved.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UnsetType

from kilonova.api import quota_check
from kilonova.api.call import Answer, Call
from kilonova.api.moments import now
from kilonova.api.servers import images, networks, volumes
from kilonova.api.servers.bodies import CreateServer, NewServer, given
from kilonova.api.servers.placing import Place, check_group_room, resolve_place
from kilonova.base import log
from kilonova.base.errors import BadRequest, Fault, NotFound, OverQuota
from kilonova.base.flow import Run
from kilonova.base.operation import operation
from kilonova.core import names
from kilonova.core.device import BlockDevice
from kilonova.core.disks import plan_devices, with_fresh_uuids
from kilonova.core.flavor import Flavor
from kilonova.core.image import Image
from kilonova.core.network import NetworkRequest
from kilonova.core.quota import Use
from kilonova.core.request import RequestSpec
from kilonova.core.server import Server
from kilonova.store import build_requests, flavors, instance_mappings, journal, keypairs, server_groups
from kilonova.store.build_requests import BuildRequest
from kilonova.store.keypairs import KeyPair
from kilonova.store.session import Tx

LOG = log.of(__name__)


class Wanted(msgspec.Struct, kw_only=True):
    """A create request, resolved."""

    flavor: Flavor
    image: Image | None
    image_id: str | None
    devices: list[BlockDevice]
    networks: list[NetworkRequest]
    security_groups: list[str]
    place: Place
    key: KeyPair | None
    files: list[tuple[str, str]]
    password: str
    count: int
    reservation_id: str

    @property
    def volume_backed(self) -> bool:
        """Whether the root disk is a volume."""
        return any(device.is_root and device.is_volume for device in self.devices)


@operation(
    "POST",
    "/servers",
    rule="os_compute_api:servers:create",
    body=CreateServer,
    success=202,
    refuses={400, 403, 409},
)
def create_server(call: Call[CreateServer]) -> Answer:
    """Make one or more servers."""
    call.authorize()
    wanted = _resolve(call)
    records = [_record(call, wanted, index) for index in range(wanted.count)]
    reserved: list[str] = []
    guards = volumes.guard(call, [record.uuid for record in records], wanted.devices)
    try:
        requests = [_build_request(call, wanted, record, reserved) for record in records]
        run = _start(call, wanted, requests, guards)
    except BaseException:
        volumes.give_back(call, reserved, guards)
        raise
    if call.options.quota.recheck_quota:
        _recheck(call, wanted, requests, reserved)
    _wake(call, run)
    return _answer(call, wanted, records[0])


def _wake(call: Call[Any], run: Run) -> None:
    """The run is committed: when nobody hears this, a conductor finds it by itself."""
    try:
        call.services.conductor("").wake(run=run.id, where="")
    except Fault as error:
        LOG.warning("no conductor was woken for run %s: %s", run.id, error.message)


def _resolve(call: Call[CreateServer]) -> Wanted:
    server = call.body.server
    least, most = _counts(server)
    files = _files(server)
    metadata = given(server.metadata, {})
    quota_check.check_metadata(call, len(metadata))
    quota_check.check_files(call, [(path, base64.b64decode(content)) for path, content in files])
    if not isinstance(given(server.trusted_certs, None), type(None)):
        call.authorize(rule="os_compute_api:servers:create:trusted_certs")
    place = resolve_place(call)
    asked = volumes.requested_devices(server)
    if asked:
        call.authorize(rule="os_compute_api:servers:create:attach_volume")
    image_id = _image_id(server, has_devices=bool(asked))
    flavor = _flavor(call, str(server.flavor))
    key = _key(call, server)
    image = images.find_image(call, image_id) if image_id else None
    devices = plan_devices(
        asked, image_id=image_id, flavor=flavor, max_local=call.options.default.max_local_block_devices
    )
    remembered = volumes.check_devices(call, devices, servers=most, zone=place.zone)
    root = next(device for device in devices if device.is_root)
    image = image or _image_of_root(call, root, remembered)
    images.check_flavor(call, image, flavor, root)
    if root.is_volume and given(server.trusted_certs, None):
        raise BadRequest("Image certificate validation is not supported when booting from volume")
    groups = _security_groups(server)
    networks.check_security_groups(call, groups)
    requests = networks.resolve_networks(call, server)
    networks.check_count(requests, most=most)
    if _hostname(server) and most > 1:
        raise BadRequest("Unable to allocate a single hostname to multiple instances")
    count = quota_check.allowed_servers(call, flavor, least=least, most=most)
    count = networks.servers_with_ports(call, requests, least=least, most=count)
    if place.group is not None:
        check_group_room(call, place.group, more=count)
    return Wanted(
        flavor=flavor,
        image=image,
        image_id=image_id,
        devices=devices,
        networks=requests,
        security_groups=groups,
        place=place,
        key=key,
        files=files,
        password=given(server.admin_password, "") or names.password(call.options.default.password_length),
        count=count,
        reservation_id=names.reservation_id(),
    )


def _counts(server: NewServer) -> tuple[int, int]:
    least = 1 if isinstance(server.min_count, UnsetType) else int(server.min_count)
    most = least if isinstance(server.max_count, UnsetType) else int(server.max_count)
    if least > most:
        raise BadRequest("min_count must be <= max_count")
    return least, most


def _files(server: NewServer) -> list[tuple[str, str]]:
    found = []
    for file in given(server.personality, []):
        path, contents = given(file.path, ""), given(file.contents, "")
        if not path:
            raise BadRequest("Bad personality format: missing path")
        found.append((path, contents))
    return found


def _image_id(server: NewServer, *, has_devices: bool) -> str | None:
    image_id = given(server.image, "")
    if not image_id and not has_devices:
        raise BadRequest("Missing imageRef attribute")
    return str(image_id) or None


def _image_of_root(call: Call[Any], root: BlockDevice, remembered: dict[str, str]) -> Image | None:
    """What the root volume is made of: an image, or what an existing volume remembers of its own."""
    if root.image_id:
        return images.find_image(call, root.image_id)
    return images.image_of_volume(remembered) if remembered else None


def _flavor(call: Call[Any], flavorid: str) -> Flavor:
    try:
        with call.services.cells.api.read() as tx:
            flavor = flavors.get(tx, flavorid)
    except NotFound as error:
        raise BadRequest(error.message) from None
    hidden = not flavor.is_public and call.context.project_id not in flavor.projects
    if flavor.disabled or (hidden and not call.context.is_admin):
        raise BadRequest(f"Flavor {flavorid} could not be found.")
    _refuse_devices(flavor)
    return flavor


def _refuse_devices(flavor: Flavor) -> None:
    """No aliases of PCI devices are defined here, so a flavor that names one can be given to nobody."""
    for alias in filter(None, flavor.extra_specs.get("pci_passthrough:alias", "").split(",")):
        raise BadRequest(f"PCI alias {alias.partition(':')[0].strip()} is not defined")


def _key(call: Call[Any], server: NewServer) -> KeyPair | None:
    name = given(server.key_name, None)
    if name is None:
        return None
    try:
        with call.services.cells.api.read() as tx:
            return keypairs.get(tx, call.context.user_id, name)
    except NotFound:
        raise BadRequest("Invalid key_name provided.") from None


def _security_groups(server: NewServer) -> list[str]:
    asked = [given(group.name, "") for group in given(server.security_groups, [])]
    return list(dict.fromkeys(name for name in asked if name)) or ["default"]


def _hostname(server: NewServer) -> str:
    return given(server.hostname, given(server.short_hostname, ""))


def _record(call: Call[CreateServer], wanted: Wanted, index: int) -> Server:
    server, context = call.body.server, call.context
    key = wanted.key
    made = str(uuid.uuid4())
    at = now()
    name = names.in_batch(server.name, index, wanted.count)
    properties = wanted.image.properties if wanted.image is not None else {}
    drive = bool(given(server.config_drive, False)) or call.options.default.force_config_drive
    return Server(
        uuid=made,
        project_id=context.project_id,
        user_id=context.user_id,
        name=name,
        flavor=wanted.flavor,
        created_at=at,
        updated_at=at,
        hostname=_hostname(server) or names.hostname_of(name, otherwise=f"server-{made}"),
        description=given(server.description, None if call.since("2.19") else name),
        image_id=wanted.image_id,
        image_properties=properties,
        kernel_id=wanted.image.kernel_id if wanted.image is not None else None,
        ramdisk_id=wanted.image.ramdisk_id if wanted.image is not None else None,
        availability_zone=wanted.place.zone,
        requested_zone=wanted.place.shown,
        launch_index=index,
        reservation_id=wanted.reservation_id,
        key_name=key.name if key is not None else None,
        key_data=key.public_key if key is not None else None,
        key_type=key.type if key is not None else "ssh",
        user_data=given(server.user_data, None),
        config_drive=drive or properties.get("img_config_drive") == "mandatory",
        access_ip_v4=given(server.access_ip_v4, None),
        access_ip_v6=given(server.access_ip_v6, None),
        auto_disk_config=given(server.disk_config, "MANUAL") == "AUTO",
        metadata=given(server.metadata, {}),
        tags=sorted(set(given(server.tags, []))),
        security_groups=wanted.security_groups,
        trusted_certs=given(server.trusted_certs, None),
        volume_backed=wanted.volume_backed,
    )


def _build_request(call: Call[Any], wanted: Wanted, record: Server, reserved: list[str]) -> BuildRequest:
    devices = with_fresh_uuids(wanted.devices)
    return BuildRequest(
        server=record,
        request=_spec(call, wanted),
        devices=volumes.reserve(call, record.uuid, devices, reserved),
        networks=wanted.networks,
        admin_password=wanted.password,
        files=wanted.files,
    )


def _spec(call: Call[Any], wanted: Wanted) -> RequestSpec:
    place = wanted.place
    return RequestSpec(
        project_id=call.context.project_id,
        user_id=call.context.user_id,
        flavor=wanted.flavor,
        image_id=wanted.image_id,
        image_properties=wanted.image.properties if wanted.image is not None else {},
        availability_zone=place.zone,
        hints=place.hints,
        group=place.group,
        force_host=place.force_host,
        force_node=place.force_node,
        requested_host=place.requested_host,
        requested_node=place.requested_node,
        volume_backed=wanted.volume_backed,
        request_id=call.context.request_id,
    )


def _start(call: Call[Any], wanted: Wanted, requests: Sequence[BuildRequest], guards: Sequence[Run]) -> Run:
    """Commit the build requests and the run that schedules them, in place of the guards of what is reserved."""
    uuids = [request.server.uuid for request in requests]
    run = Run(
        id=str(uuid.uuid4()),
        flow="schedule",
        subject=wanted.reservation_id,
        state={
            "servers": uuids,
            "request": msgspec.to_builtins(requests[0].request),
            "reservation_id": wanted.reservation_id,
        },
        context=call.context,
        created_at=now(),
    )

    def write(tx: Tx) -> None:
        volumes.lift(tx, guards)
        for request in requests:
            build_requests.insert(tx, msgspec.structs.replace(request, run=run.id))
        if wanted.place.group is not None:
            server_groups.add_members(tx, wanted.place.group.uuid, uuids)
        journal.start_in(tx, run)

    call.services.cells.api.write(write)
    return run


def _recheck(call: Call[Any], wanted: Wanted, requests: Sequence[BuildRequest], reserved: Sequence[str]) -> None:
    """Count again: two creates that were counted at the same time may be over the limit together.

    Whoever sees that takes its own servers back, all of them, unless a conductor was faster with one.
    """
    made = Use().plus(quota_check.share_of(wanted.flavor), len(requests))
    try:
        quota_check.check_again(call, made)
    except OverQuota:
        if _withdraw(call, requests):
            volumes.give_back(call, reserved)
            raise


def _withdraw(call: Call[Any], requests: Sequence[BuildRequest]) -> bool:
    """Take the build requests back; False when one of them is in a cell already.

    Their run goes on: it gives back the room that it may just be claiming, and what it has begun in a cell.
    """

    def write(tx: Tx) -> bool:
        gone = [build_requests.delete(tx, request.server.uuid) for request in requests]
        if not all(gone):
            raise _Late
        for request in requests:
            instance_mappings.remove(tx, request.server.uuid)
            build_requests.forget(tx, request.server.uuid)
            server_groups.remove_member(tx, request.server.uuid)
        return True

    try:
        return call.services.cells.api.write(write)
    except _Late:
        return False


class _Late(Exception):
    """A server was handed to its cell before its create could be taken back."""


def _answer(call: Call[Any], wanted: Wanted, first: Server) -> Answer:
    if bool(given(call.body.server.return_reservation_id, False)):
        return Answer({"reservation_id": wanted.reservation_id})
    shown: dict[str, Any] = {
        "id": first.uuid,
        "links": call.links("servers", first.uuid),
        "OS-DCF:diskConfig": "AUTO" if first.auto_disk_config else "MANUAL",
        "security_groups": [{"name": name} for name in wanted.security_groups],
    }
    if call.options.api.enable_instance_password:
        shown["adminPass"] = wanted.password
    return Answer({"server": shown}, headers={"Location": f"{call.link_base}/servers/{first.uuid}"})
