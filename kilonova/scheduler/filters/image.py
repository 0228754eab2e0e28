"""What the image wants of the hypervisor."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.filters.base import Filter

_ARCHITECTURES = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "i386": "i686",
    "i486": "i686",
    "i586": "i686",
    "arm64": "aarch64",
}
_MODES = {"pv": "xen", "hv": "hvm", "baremetal": "hvm"}
_TERM = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(\d+(?:\.\d+)*)\s*")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


def image_properties(host: HostState, request: RequestSpec) -> str | None:
    """Architecture, hypervisor type and mode must be supported together, and the version be in range."""
    properties = request.image_properties
    if not properties:
        return None
    architecture = _lower(properties.get("hw_architecture") or properties.get("architecture"))
    mode = _lower(properties.get("hw_vm_mode") or properties.get("vm_mode"))
    wanted = [
        _ARCHITECTURES.get(architecture or "", architecture),
        _lower(properties.get("img_hv_type") or properties.get("hypervisor_type")),
        _MODES.get(mode or "", mode),
    ]
    if any(wanted) and not any(_supports(offer, wanted) for offer in host.supported):
        asked = ", ".join(w for w in wanted if w)
        return f"the image wants {asked}, which it does not support"
    version = properties.get("img_hv_requested_version")
    if version and host.hypervisor_version and not _in_range(host.hypervisor_version, version):
        return f"its hypervisor is version {_dotted(host.hypervisor_version)}, the image wants {version}"
    return None


def _lower(text: str | None) -> str | None:
    return text.lower() if text else None


def _supports(offer: tuple[str, str, str], wanted: list[str | None]) -> bool:
    return all(want is None or want == have.lower() for want, have in zip(wanted, offer, strict=True))


def _in_range(version: int, predicate: str) -> bool:
    """Whether a version (1002003 for 1.2.3) meets ``>=1.2, <2``; a predicate that cannot be read is met by none."""
    have = _parts(_dotted(version))
    for term in predicate.split(","):
        found = _TERM.fullmatch(term)
        if found is None or not _COMPARE[found[1]](have, _parts(found[2])):
            return False
    return True


def _dotted(version: int) -> str:
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


def _parts(dotted: str) -> tuple[int, ...]:
    return (*(int(part) for part in dotted.split(".")), 0, 0)[:3]


FILTERS: dict[str, Filter] = {"ImagePropertiesFilter": image_properties}
