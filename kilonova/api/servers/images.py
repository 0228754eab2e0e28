"""The image of a new server: fetched as the user sees it, and fit for the flavor."""

from __future__ import annotations

from typing import Any

from kilonova.api.call import Call
from kilonova.base.errors import BadRequest, Forbidden, ImageNotFound
from kilonova.core.device import BlockDevice
from kilonova.core.disks import GIB
from kilonova.core.flavor import Flavor
from kilonova.core.image import Image

ZERO_DISK = "os_compute_api:servers:create:zero_disk_flavor"


def find_image(call: Call[Any], image_id: str) -> Image:
    """The image; BadRequest where the user sees none of that id, or it cannot be booted from now."""
    try:
        image = call.services.glance.image(image_id, token=call.token)
    except ImageNotFound:
        raise BadRequest("Can not find requested image") from None
    if image.status != "active":
        raise BadRequest(f"Image {image_id} is not active.")
    return image


def image_of_volume(properties: dict[str, str]) -> Image:
    """What a bootable volume remembers of the image it was made of."""

    def whole(name: str) -> int:
        text = properties.get(name, "0") or "0"
        return int(text) if text.isdecimal() else 0

    return Image(
        id=properties.get("image_id", ""),
        name=properties.get("image_name", ""),
        min_ram=whole("min_ram"),
        min_disk=whole("min_disk"),
        size=0,
        properties={
            name: value
            for name, value in properties.items()
            if name not in ("image_id", "image_name", "min_ram", "min_disk", "size", "checksum")
        },
    )


def check_flavor(call: Call[Any], image: Image | None, flavor: Flavor, root: BlockDevice) -> None:
    """BadRequest where the flavor, or the root volume, is too small for the image."""
    if image is not None and flavor.memory_mb < image.min_ram:
        raise BadRequest("Flavor's memory is too small for requested image.")
    if root.is_volume:
        _check_root_volume(image, root)
        return
    if flavor.root_gb == 0:
        if not call.allows(ZERO_DISK):
            raise Forbidden("Only volume-backed servers are allowed for flavors with zero disk.")
        return
    if image is None:
        return
    size = max(image.size, image.virtual_size or 0)
    if size > flavor.root_gb * GIB:
        raise BadRequest(
            "Flavor's disk is too small for requested image. "
            f"Flavor disk is {flavor.root_gb * GIB} bytes, image is {size} bytes."
        )
    if image.min_disk > flavor.root_gb:
        raise BadRequest(
            "Flavor's disk is smaller than the minimum size specified in image metadata. "
            f"Flavor disk is {flavor.root_gb * GIB} bytes, minimum size is {image.min_disk * GIB} bytes."
        )


def _check_root_volume(image: Image | None, root: BlockDevice) -> None:
    if image is None or not root.size:
        return
    if root.size < image.min_disk:
        raise BadRequest(
            "Volume is smaller than the minimum size specified in image metadata. "
            f"Volume size is {root.size * GIB} bytes, minimum size is {image.min_disk * GIB} bytes."
        )
    if root.source_type == "image" and image.size > root.size * GIB:
        raise BadRequest(
            f"Volume size is too small for requested image. Volume size is {root.size * GIB} bytes, "
            f"image is {image.size} bytes."
        )
