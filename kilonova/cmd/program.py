"""What the nova-* programs have in common: reading nova.conf, logging, and serving until told to stop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from kilonova.base import config, log
from kilonova.base.errors import Fault
from kilonova.base.service import Service, run_forever
from kilonova.cmd.site import Site
from kilonova.cmd.config_file import config_file, files_to_read
from kilonova.cmd.options import ProcessOptions


def load_site(files: Sequence[Path], *, service: str) -> Site:
    """The Site of a configuration, with logging set up; ClickException where the configuration is bad."""
    found = files_to_read(files)
    try:
        conf = config.load(found)
        options = config.read(ProcessOptions, conf)
        log.configure(
            service=service,
            level="DEBUG" if options.debug else "INFO",
            form="json" if options.use_json else "text",
            file=Path(options.log_file) if options.log_file else None,
        )
        return Site(conf)
    except config.BadConfig as error:
        raise click.ClickException(str(error)) from None


def program(name: str, services: Callable[[Site], Sequence[Service]], help_text: str) -> click.Command:
    """A program that reads a nova.conf and serves."""

    @click.command(name=name, help=help_text)
    @config_file
    @click.version_option(package_name="kilonova")
    def run(files: tuple[Path, ...]) -> None:
        site = load_site(files, service=name)
        try:
            found = services(site)
        except (config.BadConfig, Fault, OSError) as error:
            raise click.ClickException(str(error)) from None
        sys.exit(run_forever(found))

    return run
