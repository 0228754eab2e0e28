"""Options of the metadata service."""

from __future__ import annotations

from kilonova.base.config import group, option


@group("neutron")
class MetadataOptions:
    """How guests' requests arrive."""

    service_metadata_proxy: bool = option(
        False, help="Whether requests come through Neutron's proxy, with its headers."
    )
    metadata_proxy_shared_secret: str = option("", secret=True, help="Signs what the proxy forwards.")
