"""nova-metadata-api: what guests may learn of themselves."""

from __future__ import annotations

from kilonova.base.service import Service
from kilonova.cmd import compose, http
from kilonova.cmd.program import program
from kilonova.cmd.site import Site

THREADS = 10


def services(site: Site) -> list[Service]:
    """The HTTP server."""
    application = compose.metadata_application(site)
    address = (site.process.metadata_listen, site.process.metadata_listen_port)
    service = Service("nova-metadata-api")
    service.serve(lambda: http.serve(application, address, name="nova-metadata-api", threads=THREADS))
    compose.keep_record(site, service, "nova-metadata")
    return [service]


main = program("nova-metadata-api", services, "Serve metadata to guests.")
