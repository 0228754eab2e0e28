"""Inside Keystone's own process, before it serves: users, projects, roles and the catalog as a file wants them.

The file (JSON) holds `roles`, `projects`, `users` ({name: {password, project, roles}}), `grants`
([[user, project, role]]), `inherited` ([[user, role]] in every project), `region` and `catalog`
([{type, name, url}]). Repeating it changes nothing; a changed password or URL is brought in.
"""

import importlib
import itertools
import json
import uuid
from pathlib import Path
from typing import Any

DOMAIN = "default"


class Identity:
    """Keystone's managers, used to ensure what the file asks for; each `ensure_` is safe to repeat."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.conf: Any = importlib.import_module("keystone.conf").CONF
        self.errors: Any = importlib.import_module("keystone.exception")
        self.apis: Any = importlib.import_module("keystone.common.provider_api").ProviderAPIs
        hints: Any = importlib.import_module("keystone.common.driver_hints")
        self.hints = hints.Hints
        self.roles: dict[str, str] = {}
        self.projects: dict[str, str] = {}
        self.users: dict[str, str] = {}

    def ensure_domain(self) -> None:
        """The default domain, under which all else is."""
        try:
            self.apis.resource_api.get_domain(DOMAIN)
        except self.errors.DomainNotFound:
            self.apis.resource_api.create_domain(DOMAIN, {"id": DOMAIN, "name": "Default", "enabled": True})

    def ensure_roles(self) -> None:
        """The roles, each of admin, manager, member and reader implying the next."""
        self.roles = {role["name"]: role["id"] for role in self.apis.role_api.list_roles()}
        for name in self.wanted["roles"]:
            if name not in self.roles:
                key = uuid.uuid4().hex
                self.apis.role_api.create_role(key, {"id": key, "name": name, "options": {"immutable": True}})
                self.roles[name] = key
        ladder = ["admin", "manager", "member", "reader"]
        for prior, implied in itertools.pairwise(ladder):
            try:
                self.apis.role_api.create_implied_role(self.roles[prior], self.roles[implied])
            except self.errors.Conflict:
                continue

    def ensure_projects(self) -> None:
        """The projects by name."""
        for name in self.wanted["projects"]:
            try:
                project = self.apis.resource_api.get_project_by_name(name, DOMAIN)
            except self.errors.ProjectNotFound:
                key = uuid.uuid4().hex
                project = self.apis.resource_api.create_project(
                    key, {"id": key, "name": name, "domain_id": DOMAIN, "enabled": True}
                )
            self.projects[name] = project["id"]

    def ensure_users(self) -> None:
        """The users, with the password of the file, and their roles.

        These passwords are random and long: stretching their hashes adds no safety and costs each login a quarter of
        a second, so the cheapest hash does for them, and for them only.
        """
        rounds = self.conf.identity.password_hash_rounds
        self.conf.set_override("password_hash_rounds", 4, "identity")
        try:
            for name, want in self.wanted["users"].items():
                self.users[name] = self.ensure_user(name, want["password"])
        finally:
            self.conf.set_override("password_hash_rounds", rounds, "identity")
        for user, project, role in self.wanted["grants"]:
            try:
                self.apis.assignment_api.add_role_to_user_and_project(
                    self.users[user], self.projects[project], self.roles[role]
                )
            except self.errors.Conflict:
                continue
        for user, role in self.wanted.get("inherited", []):
            self.apis.assignment_api.create_grant(
                self.roles[role], user_id=self.users[user], domain_id=DOMAIN, inherited_to_projects=True
            )
        try:
            self.apis.assignment_api.create_system_grant_for_user(self.users["admin"], self.roles["admin"])
        except self.errors.Conflict:
            pass

    def ensure_user(self, name: str, password: str) -> str:
        """One user; answers its id."""
        try:
            user = self.apis.identity_api.get_user_by_name(name, DOMAIN)
        except self.errors.UserNotFound:
            created: dict[str, str] = self.apis.identity_api.create_user(
                {"name": name, "domain_id": DOMAIN, "enabled": True, "password": password}
            )
            return created["id"]
        try:
            self.apis.identity_api.driver.authenticate(user["id"], password)
        except AssertionError:
            self.apis.identity_api.update_user(user["id"], {"password": password})
        return str(user["id"])

    def ensure_catalog(self) -> None:
        """One service for each wanted type, with its three endpoints at the wanted URL."""
        catalog, region = self.apis.catalog_api, self.wanted["region"]
        try:
            catalog.create_region({"id": region})
        except self.errors.Conflict:
            pass
        services = {service["type"]: service["id"] for service in catalog.list_services(self.hints())}
        endpoints = {(end["service_id"], end["interface"]): end for end in catalog.list_endpoints(self.hints())}
        for entry in self.wanted["catalog"]:
            key = services.get(entry["type"])
            if key is None:
                key = uuid.uuid4().hex
                catalog.create_service(key, {"id": key, "type": entry["type"], "name": entry["name"], "enabled": True})
            for interface in ("public", "internal", "admin"):
                known = endpoints.get((key, interface))
                if known is None:
                    end = uuid.uuid4().hex
                    catalog.create_endpoint(
                        end,
                        {
                            "id": end,
                            "service_id": key,
                            "interface": interface,
                            "url": entry["url"],
                            "region_id": region,
                            "enabled": True,
                        },
                    )
                elif known["url"] != entry["url"]:
                    catalog.update_endpoint(known["id"], {**known, "url": entry["url"]})


def ensure_identity(path: str) -> None:
    """Bring Keystone's database in line with the file at `path`."""
    identity = Identity(json.loads(Path(path).read_text()))
    identity.ensure_domain()
    identity.ensure_roles()
    identity.ensure_projects()
    identity.ensure_users()
    identity.ensure_catalog()
