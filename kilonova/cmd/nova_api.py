"""nova-api: the Compute API over HTTP, in threads of one process."""

from __future__ import annotations

from kilonova.api.options import EdgeOptions
from kilonova.base import config
from kilonova.base.service import Service
from kilonova.cmd import compose, http
from kilonova.cmd.program import program
from kilonova.cmd.site import Site

THREADS = 24


def services(site: Site) -> list[Service]:
    """The HTTP server."""
    options = config.read(EdgeOptions, site.conf)
    application = compose.api_application(site)
    address = (options.osapi_compute_listen, options.osapi_compute_listen_port)
    service = Service("nova-api")
    service.serve(lambda: http.serve(application, address, name="nova-api", threads=THREADS))
    compose.keep_record(site, service, "nova-osapi_compute")
    return [service]


main = program("nova-api", services, "Serve the Compute API.")
