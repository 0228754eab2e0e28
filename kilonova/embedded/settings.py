"""The configuration files of the five neighbours: small on purpose, everything else at the services' own defaults."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kilonova.embedded.pipelines import PIPELINES
from kilonova.embedded.ports import LOOPBACK, Ports
from kilonova.embedded.secret import ensure_keys, write_private

REGION = "RegionOne"
Value = str | int | bool
Sections = dict[str, dict[str, Value]]
# Their own defaults, less what repeats itself at every start and means nothing here.
LOGGING: dict[str, Value] = {
    "use_stderr": True,
    "default_log_levels": ",".join(
        (
            "sqlalchemy=WARN",
            "oslo.messaging=INFO",
            "oslo_messaging=INFO",
            "iso8601=WARN",
            "requests=WARN",
            "urllib3=WARN",
            "keystonemiddleware=WARN",
            "keystoneauth=WARN",
            "oslo_policy=WARN",
            "dogpile.core.dogpile=INFO",
            "taskflow=WARN",
            "stevedore=CRITICAL",
            "castellan=ERROR",
            "neutron.quota.resource_registry=ERROR",
        )
    ),
}


@dataclass(frozen=True)
class Site:
    """One cloud on this machine: where its state is, where its parts listen, what they say to each other."""

    state: Path
    prefix: Path
    ports: Ports
    compute_url: str
    secrets: Mapping[str, str]

    @property
    def etc(self) -> Path:
        """Where the neighbours' configuration is."""
        return self.state / "etc" / "neighbours"

    @property
    def auth_url(self) -> str:
        """Keystone."""
        return self.ports.url("keystone", "/v3")

    @property
    def plane_socket(self) -> Path:
        """Where the local network plane listens for what Neutron changes."""
        return self.state / "run" / "plane.sock"

    def database(self, name: str) -> Path:
        """The SQLite file of a part."""
        return self.state / "db" / f"{name}.db"

    def data(self, *names: str) -> str:
        """A folder of a part's data."""
        return str(self.state.joinpath("data", *names))

    def login(self, user: str) -> dict[str, Value]:
        """How a service logs in as one of the service users."""
        return {
            "auth_type": "password",
            "auth_url": self.auth_url,
            "username": user,
            "password": self.secrets[user],
            "project_name": "service",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
            "region_name": REGION,
        }

    def guard(self, user: str) -> dict[str, Value]:
        """How a service checks the tokens of its callers; what it learnt is good for five minutes."""
        return self.login(user) | {
            "www_authenticate_uri": self.auth_url,
            "service_token_roles": "service",
            "service_token_roles_required": True,
            "token_cache_time": 300,
        }

    def catalog(self) -> list[dict[str, str]]:
        """The services of the catalog with their URLs."""
        ports = self.ports
        rows = (
            ("identity", "keystone", self.auth_url),
            ("image", "glance", ports.url("glance")),
            ("placement", "placement", ports.url("placement")),
            ("network", "neutron", ports.url("neutron")),
            ("compute", "nova", self.compute_url),
            ("block-storage", "cinder", ports.url("cinder", "/v3")),
            ("volumev3", "cinderv3", ports.url("cinder", "/v3")),
        )
        return [{"type": kind, "name": name, "url": url} for kind, name, url in rows]


def keystone(site: Site) -> Sections:
    """Identity: Fernet tokens, a cache in the process."""
    return {
        "DEFAULT": {"transport_url": "fake://", "max_token_size": 16384},
        "database": {"connection": f"sqlite:///{site.database('keystone')}"},
        "cache": {"enabled": True, "backend": "oslo_cache.dict", "expiration_time": 600},
        "identity": {"max_password_length": 72},
        "token": {"provider": "fernet", "expiration": 43200},
        "fernet_tokens": {"key_repository": str(site.etc / "fernet-keys")},
        "fernet_receipts": {"key_repository": str(site.etc / "receipt-keys")},
        "credential": {"key_repository": str(site.etc / "credential-keys")},
    }


def glance(site: Site) -> Sections:
    """Images in plain files."""
    return {
        "DEFAULT": {
            "bind_host": LOOPBACK,
            "enabled_backends": "files:file",
            "transport_url": "fake://",
            "worker_self_reference_url": site.ports.url("glance"),
        },
        "wsgi": {"task_pool_threads": 2},
        "database": {"connection": f"sqlite:///{site.database('glance')}"},
        "glance_store": {"default_backend": "files"},
        "files": {"filesystem_store_datadir": site.data("glance", "images")},
        "os_glance_staging_store": {"filesystem_store_datadir": site.data("glance", "staging")},
        "os_glance_tasks_store": {"filesystem_store_datadir": site.data("glance", "tasks")},
        "paste_deploy": {"flavor": "keystone", "config_file": str(site.etc / "glance-paste.ini")},
        "keystone_authtoken": site.guard("glance"),
    }


def placement(site: Site) -> Sections:
    """Placement."""
    return {
        "DEFAULT": {},
        "placement_database": {"connection": f"sqlite:///{site.database('placement')}"},
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": site.guard("placement"),
    }


def neutron(site: Site) -> Sections:
    """Networks without agents: our mechanism driver binds ports at once; the compute API hears of what changes.

    The physical MTU is raised by what an overlay takes off, as nothing is put around the packets on one machine.
    """
    unlimited: dict[str, Value] = {
        f"quota_{thing}": -1
        for thing in (
            "network",
            "subnet",
            "port",
            "router",
            "floatingip",
            "security_group",
            "security_group_rule",
            "subnetpool",
        )
    }
    return {
        "DEFAULT": {
            "core_plugin": "ml2",
            "service_plugins": "router,qos,auto_allocate",
            "transport_url": "fake://",
            "auth_strategy": "keystone",
            "api_paste_config": str(site.etc / "neutron-paste.ini"),
            "state_path": site.data("neutron"),
            "dhcp_agent_notification": False,
            "notify_nova_on_port_status_changes": True,
            "notify_nova_on_port_data_changes": True,
            "send_events_interval": 1,
            "global_physnet_mtu": 1550,
        },
        "database": {"connection": f"sqlite:///{site.database('neutron')}"},
        "oslo_concurrency": {"lock_path": site.data("neutron", "lock")},
        "quotas": unlimited,
        "oslo_messaging_notifications": {"driver": "noop"},
        "keystone_authtoken": site.guard("neutron"),
        "nova": site.login("nova"),
        "placement": site.login("placement"),
        "ml2": {
            "type_drivers": "flat,vlan,vxlan,local",
            "tenant_network_types": "vxlan",
            "mechanism_drivers": "kilonova",
            "extension_drivers": "port_security,qos",
            "physical_network_mtus": "public:1500",
        },
        "ml2_type_flat": {"flat_networks": "public"},
        "ml2_type_vlan": {"network_vlan_ranges": "public:100:400"},
        "ml2_type_vxlan": {"vni_ranges": "1:2000"},
        "securitygroup": {"enable_security_group": True},
        "ml2_kilonova": {"plane_socket": str(site.plane_socket)},
    }


def cinder(site: Site) -> Sections:
    """Volumes in plain files, three services in one process."""
    return {
        "DEFAULT": {
            "scheduler_driver_init_wait_time": 1,
            "transport_url": "fake://",
            "auth_strategy": "keystone",
            "api_paste_config": str(site.etc / "cinder-paste.ini"),
            "resource_query_filters_file": str(site.prefix / "etc" / "cinder" / "resource_filters.json"),
            "state_path": site.data("cinder"),
            "enabled_backends": "local",
            "default_volume_type": "local",
            "glance_api_servers": site.ports.url("glance"),
            "my_ip": LOOPBACK,
            "host": "kilonova",
            "osapi_volume_workers": 1,
            "allow_availability_zone_fallback": True,
            "enable_force_upload": True,
            "image_conversion_dir": site.data("cinder", "conversion"),
        },
        "database": {"connection": f"sqlite:///{site.database('cinder')}"},
        "local": {
            "volume_driver": "kilonova.embedded.cinder_driver.FileVolumeDriver",
            "volume_backend_name": "local",
            "kilonova_volumes": site.data("cinder", "volumes"),
        },
        "key_manager": {
            "backend": "cinder.keymgr.conf_key_mgr.ConfKeyManager",
            "fixed_key": site.secrets["volume_key"],
        },
        "oslo_concurrency": {"lock_path": site.data("cinder", "lock")},
        "coordination": {"backend_url": f"file://{site.data('cinder', 'coordination')}"},
        "oslo_messaging_notifications": {"driver": "noop"},
        "keystone_authtoken": site.guard("cinder"),
        "service_user": site.login("cinder") | {"send_service_user_token": True},
        "nova": site.login("nova"),
    }


def identity(site: Site) -> dict[str, object]:
    """What Keystone is to hold, as launch/identity.py reads it."""
    service_users = ("glance", "placement", "neutron", "cinder", "nova")
    grants = [[user, "service", role] for user in service_users for role in ("admin", "service")]
    grants += [["admin", "admin", "admin"], ["admin", "demo", "admin"], ["demo", "demo", "member"]]
    users = {name: {"password": site.secrets[name]} for name in (*service_users, "admin", "demo")}
    return {
        "roles": ["admin", "manager", "member", "reader", "service"],
        "projects": ["admin", "demo", "service"],
        "users": users,
        "grants": grants,
        # Volumes are made in their owners' projects by a login of the compute service.
        "inherited": [["nova", "member"]],
        "region": REGION,
        "catalog": site.catalog(),
    }


def write_settings(site: Site) -> None:
    """Write all files afresh; keys are made when absent. Every file that holds a password is its owner's alone."""
    site.etc.mkdir(parents=True, exist_ok=True)
    for name, sections in (
        ("keystone", keystone(site)),
        ("glance-api", glance(site)),
        ("placement", placement(site)),
        ("neutron", neutron(site)),
        ("cinder", cinder(site)),
    ):
        write_private(site.etc / f"{name}.conf", _render(sections))
    for name, text in PIPELINES.items():
        (site.etc / f"{name}-paste.ini").write_text(text)
    write_private(site.etc / "identity.json", json.dumps(identity(site), indent=1))
    for keys in ("fernet-keys", "receipt-keys", "credential-keys"):
        ensure_keys(site.etc / keys)
    for folder in (
        "glance/images",
        "glance/staging",
        "glance/tasks",
        "neutron/lock",
        "cinder/lock",
        "cinder/volumes",
        "cinder/conversion",
        "cinder/coordination",
    ):
        (site.state / "data" / folder).mkdir(parents=True, exist_ok=True)


def _render(sections: Sections) -> str:
    lines: list[str] = []
    sections = sections | {"DEFAULT": sections["DEFAULT"] | LOGGING}
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {str(value).replace('$', '$$')}" for key, value in options.items()]
    return "\n".join(lines) + "\n"
