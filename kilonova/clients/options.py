"""How each neighbour is reached: sections of nova.conf, with the names that operators know."""

from __future__ import annotations

import dataclasses

from kilonova.base.config import group, option


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class NeighbourOptions:
    """What the sections of all neighbours have in common.

    A section without ``auth_url`` logs in as ``[service_user]`` says.
    """

    auth_type: str = option("password", help="The plugin of keystoneauth that logs in.")
    auth_url: str | None = option(None, url=True, help="Keystone's URL.")
    username: str | None = option(None, deprecated=("user_name", "user-name"), help="The service user's name.")
    user_id: str | None = option(None, help="Its id, instead of the name.")
    user_domain_id: str | None = option(None, help="The id of its domain.")
    user_domain_name: str | None = option(None, help="The name of its domain.")
    password: str | None = option(None, secret=True, help="Its password.")
    project_name: str | None = option(None, deprecated=("tenant_name", "tenant-name"), help="The project to log in to.")
    project_id: str | None = option(None, deprecated=("tenant_id", "tenant-id"), help="Its id, instead of the name.")
    project_domain_id: str | None = option(None, help="The id of the project's domain.")
    project_domain_name: str | None = option(None, help="The name of the project's domain.")
    application_credential_id: str | None = option(None, help="An application credential.")
    application_credential_secret: str | None = option(None, secret=True, help="Its secret.")
    region_name: str | None = option(None, deprecated=("os_region_name",), help="The region in the catalog.")
    valid_interfaces: list[str] = option(["internal", "public"], help="Interfaces of the catalog.")  # noqa: RUF009 - copied
    service_type: str | None = option(None, help="The type in the catalog, where it is not the usual one.")
    service_name: str | None = option(None, help="The name in the catalog; none is any.")
    endpoint_override: str | None = option(None, url=True, help="The URL to use, whatever the catalog says.")
    cafile: str | None = option(None, help="A file of certificate authorities to trust.")
    certfile: str | None = option(None, help="A client certificate (PEM).")
    keyfile: str | None = option(None, help="Its key (PEM).")
    insecure: bool = option(False, help="Do not check the server's certificate.")
    timeout: float = option(60.0, min=0.1, help="Seconds to wait for an answer.")
    connect_timeout: float = option(5.0, min=0.1, help="Seconds to wait for a connection.")
    connect_retries: int = option(
        3,
        min=0,
        deprecated=("http_retries", "num_retries"),
        help="How often a request is sent again when there is no answer.",
    )


@group("service_user")
class ServiceUserOptions(NeighbourOptions):
    """Who we are to the neighbours whose sections do not say, and beside a user's token."""

    send_service_user_token: bool = option(
        True, help="Send our own token beside a user's, so that what we began may outlive the user's token."
    )


@group("placement")
class PlacementOptions(NeighbourOptions):
    """Placement."""


@group("neutron")
class NeutronOptions(NeighbourOptions):
    """Neutron."""

    extension_sync_interval: int = option(600, min=0, help="Seconds for which the list of extensions is believed.")
    facts_seconds: float = option(
        15.0, min=0, help="Seconds for which networks, subnets and security groups are believed."
    )


@group("cinder")
class CinderOptions(NeighbourOptions):
    """Cinder."""

    catalog_info: str = option("volumev3::publicURL", help="Where it is in the catalog: type:name:interface.")
    endpoint_template: str | None = option(
        None, url=True, help="The URL to use whatever the catalog says; %(project_id)s stands for the project."
    )
    cross_az_attach: bool = option(True, help="Whether servers and volumes of different zones may go together.")


@group("glance")
class GlanceOptions(NeighbourOptions):
    """Glance."""

    api_servers: list[str] = option([], help="URLs to use whatever the catalog says; the first counts.")


@group("keystone")
class KeystoneOptions(NeighbourOptions):
    """Keystone, asked about projects."""


@group("api")
class VendorDataOptions:
    """The operator's additions to what guests learn of themselves."""

    vendordata_providers: list[str] = option(
        ["StaticJSON"], help="Which are told: StaticJSON (a file), DynamicJSON (services asked for each server)."
    )
    vendordata_jsonfile_path: str | None = option(None, help="The file of StaticJSON.")
    vendordata_dynamic_targets: list[str] = option([], help="The services of DynamicJSON: name@url.")
    vendordata_dynamic_connect_timeout: float = option(5.0, min=0.1, help="Seconds to wait for a connection to one.")
    vendordata_dynamic_read_timeout: float = option(5.0, min=0.1, help="Seconds to wait for its answer.")
    vendordata_dynamic_failure_fatal: bool = option(False, help="Whether a service that fails fails the boot.")


@group("vendordata_dynamic_auth")
class VendorLoginOptions(NeighbourOptions):
    """Who we are to those services; without auth_url they are asked by nobody in particular."""
