"""What requests about servers may say, at each microversion."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from msgspec import UNSET, Meta, UnsetType

from kilonova.api import formats
from kilonova.api.inputs import MAX_INT, LaxBool, LaxInt, Short, as_bool, name_of, whole
from kilonova.base.body import Body, wire

T = TypeVar("T")
KEY = r"[a-zA-Z0-9\-_:. ]{1,255}"

Tag = Annotated[str, Meta(min_length=1, max_length=60)]
Text255 = Annotated[str, Meta(max_length=255)]
DiskConfig = Literal["AUTO", "MANUAL"]
ShortHost = Annotated[str, Meta(min_length=2, max_length=63)]

tag_of = formats.matching(r"[^,/]*")
host_of = formats.matching(r"[a-zA-Z0-9\-._]*")
short_host_of = formats.matching(r"[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+")
device_of = formats.matching(r"[a-zA-Z0-9._/-]*")


def given(value: T | UnsetType, otherwise: T) -> T:
    """The value of an attribute, or ``otherwise`` where the request does not have it."""
    return otherwise if isinstance(value, UnsetType) else value


def metadata_of(value: dict[str, str]) -> dict[str, str]:
    """A check of metadata: keys of some characters, values up to 255 characters."""
    key_of = formats.matching(KEY)
    for key, text in value.items():
        key_of(key)
        if len(text) > 255:
            raise ValueError(f"the value of {key!r} is too long")
    return value


def certificates_of(value: list[str] | None) -> list[str] | None:
    """A check of ids of certificates: each once."""
    if value is not None and len(set(value)) != len(value):
        raise ValueError(f"{value!r} has non-unique elements")
    return value


def image_of(value: str) -> str:
    """A check of an image's id, which may be empty."""
    return value if value == "" else formats.uuid_like(value)


def flavor_of(value: str | int) -> str:
    """A flavor's id, also at the end of a link."""
    return str(value).rstrip("/").rsplit("/", 1)[-1] or str(value)


class NetworkEntry(Body):
    """One of ``networks``."""

    fixed_ip: Annotated[str | UnsetType, wire(check=formats.address)] = UNSET
    port: Annotated[str | UnsetType | None, wire(check=formats.optional(formats.uuid_like))] = UNSET
    loose_uuid: Annotated[str | UnsetType, wire("uuid", until="2.36")] = UNSET
    uuid: Annotated[str | UnsetType, wire(since="2.37", check=formats.uuid_like)] = UNSET
    early_tag: Annotated[Tag | UnsetType, wire("tag", since="2.32", until="2.36", check=tag_of)] = UNSET
    tag: Annotated[Tag | UnsetType, wire(since="2.42", check=tag_of)] = UNSET


class LegacyDevice(Body):
    """One of ``block_device_mapping``."""

    virtual_name: Text255 | UnsetType = UNSET
    volume_id: Annotated[str | UnsetType, wire(check=formats.uuid_like)] = UNSET
    snapshot_id: Annotated[str | UnsetType, wire(check=formats.uuid_like)] = UNSET
    volume_size: Annotated[LaxInt | UnsetType, wire(check=whole(1, MAX_INT))] = UNSET
    device_name: Annotated[Short | UnsetType, wire(check=device_of)] = UNSET
    delete_on_termination: Annotated[LaxBool | UnsetType, wire(check=as_bool)] = UNSET
    no_device: Any = None
    connection_info: Annotated[str, Meta(max_length=16777215)] | UnsetType = UNSET


class DeviceEntry(LegacyDevice):
    """One of ``block_device_mapping_v2``."""

    source_type: Literal["volume", "image", "snapshot", "blank"] | UnsetType = UNSET
    uuid: Annotated[Short | UnsetType, wire(check=formats.matching(r"[a-zA-Z0-9._-]*"))] = UNSET
    image_id: Annotated[str | UnsetType, wire(check=formats.uuid_like)] = UNSET
    destination_type: Literal["local", "volume"] | UnsetType = UNSET
    guest_format: Text255 | UnsetType = UNSET
    device_type: Text255 | UnsetType = UNSET
    disk_bus: Text255 | UnsetType = UNSET
    boot_index: Annotated[LaxInt | UnsetType | None, wire(check=formats.optional(whole(-MAX_INT, MAX_INT)))] = UNSET
    early_tag: Annotated[Tag | UnsetType, wire("tag", since="2.32", until="2.32", check=tag_of)] = UNSET
    tag: Annotated[Tag | UnsetType, wire(since="2.42", check=tag_of)] = UNSET
    volume_type: Annotated[Text255 | UnsetType | None, wire(since="2.67")] = UNSET


class File(Body):
    """One of ``personality``: a file to be put into the guest."""

    path: str | UnsetType = UNSET
    contents: Annotated[str | UnsetType, wire(check=formats.base64_text)] = UNSET


class GroupName(Body):
    """One of ``security_groups``."""

    name: Annotated[Short | UnsetType, wire(check=name_of)] = UNSET


class NewServer(Body):
    """What stands under ``server`` of a create."""

    name: Annotated[Short, wire(check=name_of)]
    flavor: Annotated[Annotated[str, Meta(min_length=1)] | int, wire("flavorRef", check=flavor_of)]
    image: Annotated[str | UnsetType, wire("imageRef", check=image_of)] = UNSET
    admin_password: Annotated[str | UnsetType, wire("adminPass")] = UNSET
    metadata: Annotated[dict[str, str] | UnsetType, wire(check=metadata_of)] = UNSET
    listed_networks: Annotated[list[NetworkEntry] | UnsetType, wire("networks", until="2.36")] = UNSET
    networks: Annotated[
        list[NetworkEntry] | Literal["none", "auto"] | UnsetType, wire(since="2.37", required_since="2.37")
    ] = UNSET
    disk_config: Annotated[DiskConfig | UnsetType, wire("OS-DCF:diskConfig")] = UNSET
    access_ip_v4: Annotated[str | UnsetType, wire("accessIPv4", check=formats.ipv4)] = UNSET
    access_ip_v6: Annotated[str | UnsetType, wire("accessIPv6", check=formats.ipv6)] = UNSET
    personality: Annotated[list[File] | UnsetType, wire(until="2.56")] = UNSET
    availability_zone: Annotated[Short | UnsetType, wire(check=name_of)] = UNSET
    block_device_mapping: list[LegacyDevice] | UnsetType = UNSET
    block_device_mapping_v2: list[DeviceEntry] | UnsetType = UNSET
    config_drive: Annotated[LaxBool | UnsetType, wire(check=as_bool)] = UNSET
    key_name: Annotated[Short | UnsetType, wire(check=name_of)] = UNSET
    min_count: Annotated[LaxInt | UnsetType, wire(check=whole(1, MAX_INT))] = UNSET
    max_count: Annotated[LaxInt | UnsetType, wire(check=whole(1, MAX_INT))] = UNSET
    return_reservation_id: Annotated[LaxBool | UnsetType, wire(check=as_bool)] = UNSET
    security_groups: list[GroupName] | UnsetType = UNSET
    user_data: Annotated[Annotated[str, Meta(max_length=65535)] | UnsetType, wire(check=formats.base64_text)] = UNSET
    description: Annotated[Text255 | UnsetType | None, wire(since="2.19", check=formats.optional(formats.one_line))] = (
        UNSET
    )
    tags: Annotated[
        Annotated[list[Tag], Meta(max_length=50)] | UnsetType, wire(since="2.52", check=formats.each(tag_of))
    ] = UNSET
    trusted_certs: Annotated[
        Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=50)] | UnsetType | None,
        wire("trusted_image_certificates", since="2.63", check=certificates_of),
    ] = UNSET
    host: Annotated[Short | UnsetType, wire(since="2.74", check=host_of)] = UNSET
    hypervisor_hostname: Annotated[Short | UnsetType, wire(since="2.74", check=host_of)] = UNSET
    short_hostname: Annotated[
        ShortHost | UnsetType, wire("hostname", since="2.90", until="2.93", check=short_host_of)
    ] = UNSET
    hostname: Annotated[Short | UnsetType, wire(since="2.94", check=host_of)] = UNSET


_UUIDS = ("group", "different_host", "same_host")


def hints_of(value: dict[str, Any]) -> dict[str, Any]:
    """A check of scheduler hints: the known ones have their forms, others pass."""
    for key in _UUIDS:
        for item in _items(value, key):
            formats.uuid_like(item)
    _items(value, "different_cell")
    query = value.get("query", "")
    _require(isinstance(query, str | dict), f"query: {query!r} is not of type 'string', 'object'")
    for key, check in (
        ("target_cell", name_of),
        ("build_near_host_ip", formats.address),
        ("cidr", formats.matching(r"/[0-9a-f.:]+")),
    ):
        if key in value:
            [text] = _items({key: [value[key]]}, key)
            check(text)
    return value


def _items(value: dict[str, Any], key: str) -> list[str]:
    if key not in value:
        return []
    items = value[key] if isinstance(value[key], list) else [value[key]]
    for item in items:
        _require(isinstance(item, str), f"{key}: {item!r} is not of type 'string'")
    return items


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


class CreateServer(Body):
    """POST /servers."""

    server: NewServer
    hints: Annotated[dict[str, Any] | UnsetType, wire("os:scheduler_hints", check=hints_of)] = UNSET
    old_hints: Annotated[dict[str, Any] | UnsetType, wire("OS-SCH-HNT:scheduler_hints", check=hints_of)] = UNSET


class ServerChanges(Body):
    """What stands under ``server`` of an update."""

    name: Annotated[Short | UnsetType, wire(check=name_of)] = UNSET
    disk_config: Annotated[DiskConfig | UnsetType, wire("OS-DCF:diskConfig")] = UNSET
    access_ip_v4: Annotated[str | UnsetType, wire("accessIPv4", check=formats.ipv4)] = UNSET
    access_ip_v6: Annotated[str | UnsetType, wire("accessIPv6", check=formats.ipv6)] = UNSET
    description: Annotated[Text255 | UnsetType | None, wire(since="2.19", check=formats.optional(formats.one_line))] = (
        UNSET
    )
    short_hostname: Annotated[
        ShortHost | UnsetType, wire("hostname", since="2.90", until="2.93", check=short_host_of)
    ] = UNSET
    hostname: Annotated[Short | UnsetType, wire(since="2.94", check=host_of)] = UNSET
    pinned_zone: Annotated[Short | UnsetType | None, wire("pinned_availability_zone", since="2.104")] = UNSET


class UpdateServer(Body):
    """PUT /servers/{server_id}."""

    server: ServerChanges


class Reboot(Body):
    """The action reboot."""

    type: Literal["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]


class ResetState(Body):
    """The action os-resetState."""

    state: Literal["active", "error"]


class ConsoleOutput(Body):
    """The action os-getConsoleOutput. ``length``: lines from the end; -1 and null are all."""

    length: Annotated[LaxInt | UnsetType | None, wire(check=formats.optional(whole(-1, MAX_INT)))] = UNSET


class Lock(Body):
    """The action lock."""

    nullable: ClassVar[bool] = True

    locked_reason: Annotated[Annotated[str, Meta(min_length=1, max_length=255)] | UnsetType, wire()] = UNSET
