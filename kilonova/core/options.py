"""Options that services of several kinds must agree on."""

from __future__ import annotations

from kilonova.base.config import group, option


@group("DEFAULT")
class HeartbeatOptions:
    """Who counts as alive, and the zones of hosts that are in none."""

    report_interval: float = option(10.0, min=0.1, help="Seconds between the heartbeats of a service.")
    service_down_time: int = option(60, min=1, help="Seconds without a heartbeat after which a service counts as down.")
    default_availability_zone: str = option("nova", help="The zone of hosts that are in no aggregate with one.")
    internal_service_availability_zone: str = option(
        "internal", help="The zone under which services other than nova-compute are shown."
    )


@group("DEFAULT")
class GuestOptions:
    """What every guest is given."""

    force_config_drive: bool = option(False, help="Give every new guest a config drive.")
    dhcp_domain: str = option(
        "novalocal", deprecated=("api.dhcp_domain",), help="The domain appended to the host names of guests."
    )
