"""Keystone over HTTP."""

from __future__ import annotations

from kilonova.base import log
from kilonova.clients.session import Neighbour

LOG = log.of(__name__)


class RestKeystone:
    """Implements ``Keystone``."""

    def __init__(self, http: Neighbour) -> None:
        self._http = http

    def project_exists(self, project_id: str, *, token: str = "") -> bool:
        base = "" if self._http.endpoint().endswith("/v3") else "/v3"
        answer = self._http.get(f"{base}/projects/{project_id}", token=token)
        if answer.status_code == 404:
            return False
        if answer.status_code != 200:
            LOG.info("Keystone does not tell whether project %s exists (%s)", project_id, answer.status_code)
        return True
