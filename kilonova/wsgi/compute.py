"""The Compute API for any WSGI server: ``kilonova.wsgi.compute:application``.

The configuration is read as nova-api reads it: the files named by OS_KILONOVA_CONFIG (separated by colons), or
/etc/nova/nova.conf.
"""

from __future__ import annotations

import os

from kilonova.base import config
from kilonova.cmd import compose

application = compose.api_application(
    compose.Site(config.load(os.environ.get("OS_KILONOVA_CONFIG", "/etc/nova/nova.conf").split(":")))
)
