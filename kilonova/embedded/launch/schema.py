"""Make one neighbour's SQLite schema: `schema.py NAME DATABASE`; a database that is there is brought up to date.

Keystone, Glance, Placement and Cinder use their own migrations. Neutron's fail on SQLite (they alter constraints), so
its schema is made from its models and stamped with the newest revisions, with the rows that a migration would add.
"""

import importlib
import os
import sqlite3
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

COMMANDS = {
    "keystone": ("keystone.cmd.manage", ["db_sync"]),
    "glance": ("glance.cmd.manage", ["db", "sync"]),
    "placement": ("placement.cmd.manage", ["db", "sync"]),
    "cinder": ("cinder.cmd.manage", ["db", "sync"]),
}
DEFAULT_RULES = (
    ("egress", "IPv4", None),
    ("egress", "IPv6", None),
    ("ingress", "IPv4", "PARENT"),
    ("ingress", "IPv6", "PARENT"),
)


def migrate(name: str, database: Path) -> None:
    """Run the neighbour's own migrations."""
    module, arguments = COMMANDS[name]
    section = "placement_database" if name == "placement" else "database"
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / f"{name}.conf"
        config.write_text(
            f"[{section}]\nconnection = sqlite:///{database}\n[DEFAULT]\nuse_stderr = false\n"
            f"log_file = {scratch}/log\nstate_path = {scratch}\n"
        )
        sys.argv = [f"{name}-manage", "--config-file", str(config), *arguments]
        try:
            importlib.import_module(module).main()
        except SystemExit as end:
            if end.code:
                raise


def create_network_schema(database: Path) -> None:
    """Neutron's tables from its models, both heads stamped, the default security group rules."""
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    metadata: Any = importlib.import_module("neutron.db.migration.models.head").get_metadata()
    heads = newest_revisions()
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        if sqlalchemy.inspect(connection).has_table("alembic_version"):
            stamped = {row[0] for row in connection.execute(sqlalchemy.text("select version_num from alembic_version"))}
            if stamped != set(heads):
                sys.exit(
                    f"{database} was made by another release of the network service (revisions "
                    f"{', '.join(sorted(stamped))}; this one wants {', '.join(sorted(heads))}) and cannot be "
                    "changed in place on SQLite: start with a new state directory"
                )
            return
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table alembic_version (version_num varchar(32) primary key)"))
        for head in heads:
            connection.execute(sqlalchemy.text("insert into alembic_version values (:head)"), {"head": head})
        for direction, family, group in DEFAULT_RULES:
            standard = connection.execute(
                metadata.tables["standardattributes"].insert().values(resource_type="securitygroupdefaultrules")
            )
            connection.execute(
                metadata.tables["securitygroupdefaultrules"]
                .insert()
                .values(
                    id=str(uuid.uuid4()),
                    standard_attr_id=standard.inserted_primary_key[0],
                    direction=direction,
                    ethertype=family,
                    remote_group_id=group,
                    used_in_default_sg=True,
                    used_in_non_default_sg=direction == "egress",
                )
            )


def newest_revisions() -> list[str]:
    """The heads of Neutron's two migration branches."""
    script: Any = importlib.import_module("alembic.script")
    config: Any = importlib.import_module("alembic.config").Config()
    migration: Any = importlib.import_module("neutron.db.migration")
    scripts = Path(migration.__file__).parent / "alembic_migrations"
    versions = scripts / "versions"
    branches = sorted(str(path) for pattern in ("*/expand", "*/contract") for path in versions.glob(pattern))
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("version_locations", os.pathsep.join([str(versions), *branches]))
    config.set_main_option("path_separator", "os")
    return list(script.ScriptDirectory.from_config(config).get_heads())


def main() -> None:
    """Make or update the schema, then leave the file in WAL mode."""
    name, database = sys.argv[1], Path(sys.argv[2])
    fresh = not database.exists()
    if name == "neutron":
        create_network_schema(database)
    else:
        migrate(name, database)
    with sqlite3.connect(database) as connection:
        if name == "cinder" and fresh:  # a migration has put in ten volumes and 1,000 GiB as everybody's quota
            connection.execute("UPDATE quota_classes SET hard_limit = -1 WHERE class_name = 'default'")
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


main()
