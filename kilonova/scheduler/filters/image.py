"""What the image wants of the hypervisor."""

from __future__ import annotations

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.matching import matches

_ALIASES = {"amd64": "x86_64", "x64": "x86_64", "i386": "i686", "i486": "i686", "i586": "i686", "arm64": "aarch64"}
_HYPERVISORS = {"kvm": "kvm", "qemu": "qemu", "libvirt": "kvm"}


def image_properties(host: HostState, request: RequestSpec) -> str | None:
    """Architecture, hypervisor type and mode must be supported together, and the version be in range."""
    properties = request.image_properties
    wanted = [
        _canonical(properties.get("hw_architecture") or properties.get("architecture")),
        _lower(properties.get("img_hv_type") or properties.get("hypervisor_type")),
        _lower(properties.get("hw_vm_mode") or properties.get("vm_mode")),
    ]
    if any(wanted) and not any(_supports(offer, wanted) for offer in host.supported):
        asked = ", ".join(w for w in wanted if w)
        return f"the image wants {asked}, which it does not support"
    version = properties.get("img_hv_requested_version")
    if version and not matches(str(host.hypervisor_version), version):
        return f"its hypervisor is version {host.hypervisor_version}, the image wants {version}"
    return None


def _canonical(architecture: str | None) -> str | None:
    name = _lower(architecture)
    return _ALIASES.get(name, name) if name else None


def _lower(text: str | None) -> str | None:
    return text.lower() if text else None


def _supports(offer: tuple[str, str, str], wanted: list[str | None]) -> bool:
    return all(want is None or want == have.lower() for want, have in zip(wanted, offer, strict=True))


FILTERS: dict[str, Filter] = {"ImagePropertiesFilter": image_properties}
