"""What the nova-* programs have in common: reading nova.conf, logging, and serving until told to stop."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import click

from kilonova.base import config, log
from kilonova.base.errors import Fault
from kilonova.base.service import Service, run_forever
from kilonova.cmd.config_file import config_file, files_to_read
from kilonova.cmd.options import ProcessOptions
from kilonova.cmd.site import Site

_DECLARED = ("api", "clients", "compute", "core", "metadata", "scheduler", "virt.fake", "virt.libvirt")
"""Where options are declared. One file may serve all programs, so each knows the options of all."""


def read_site(files: Sequence[Path], *, service: str) -> Site:
    """The Site of a configuration, with logging set up; BadConfig."""
    warnings.filterwarnings("ignore", "\\s*Eventlet is deprecated")  # looked for by a library, not used
    for part in _DECLARED:
        importlib.import_module(f"kilonova.{part}.options")
    conf = config.load(files_to_read(files))
    options = config.read(ProcessOptions, conf)
    log.configure(
        service=service,
        level="DEBUG" if options.debug else "INFO",
        form="json" if options.use_json else "text",
        file=Path(options.log_file) if options.log_file else None,
    )
    return Site(conf)


def program(name: str, services: Callable[[Site], Sequence[Service]], help_text: str) -> click.Command:
    """A program that reads a nova.conf and serves."""

    @click.command(name=name, help=help_text)
    @config_file
    @click.version_option(package_name="kilonova")
    def run(files: tuple[Path, ...]) -> None:
        try:
            site = read_site(files, service=name)
            status = run_forever(services(site))
        except (config.BadConfig, Fault, OSError) as error:
            raise click.ClickException(str(error)) from None
        end(site, status)

    return run


def end(site: Site, status: int) -> NoReturn:
    """Close the site and end the process: libraries' threads that wait for something do not hold it up."""
    site.close()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
