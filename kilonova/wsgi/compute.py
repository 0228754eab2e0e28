"""The Compute API for any WSGI server: ``kilonova.wsgi.compute:application``.

The configuration is read as nova-api reads it: the files named by KILONOVA_CONFIG (separated by colons), or
/etc/nova/nova.conf.
"""

from __future__ import annotations

import os
from pathlib import Path

from kilonova.cmd import compose
from kilonova.cmd.program import load_site

_FILES = [Path(name) for name in os.environ.get("KILONOVA_CONFIG", "").split(":") if name]

application = compose.api_application(load_site(_FILES, service="nova-api"))
