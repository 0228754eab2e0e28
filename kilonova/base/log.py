"""Logging: one line of text or JSON per record, with the request and server it belongs to.

Secrets never reach a log: messages name things, and ``masked`` hides what URLs carry.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from pathlib import Path

from kilonova.base import context as contexts

_CREDENTIALS = re.compile(r"(?P<scheme>[a-z+]+://)[^@/\s]+@")


def of(name: str) -> logging.Logger:
    """The logger of a module."""
    return logging.getLogger(name)


def masked(url: str) -> str:
    """A URL without its user and password."""
    return _CREDENTIALS.sub(r"\g<scheme>***@", url)


class _Text(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        context = contexts.current()
        record.request = f"[{context.request_id}] " if context.request_id else ""
        return super().format(record)


class _JSON(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        context = contexts.current()
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if context.request_id:
            line["request_id"] = context.request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(*, service: str, level: str = "INFO", form: str = "text", file: Path | None = None) -> None:
    """Send the process's log to ``file``, or to standard error. ``form`` is "text" or "json"."""
    target = logging.FileHandler(file) if file is not None else logging.StreamHandler(sys.stderr)
    if form == "json":
        target.setFormatter(_JSON())
    else:
        target.setFormatter(_Text(f"%(asctime)s %(levelname)s {service} %(name)s %(request)s%(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [target]
    root.setLevel(level)
    for chatty in (
        "urllib3",
        "keystoneauth",
        "oslo",
        "oslo_messaging",
        "amqp",
        "sqlalchemy.engine",
        "keystonemiddleware",
        "stevedore",
    ):
        logging.getLogger(chatty).setLevel(logging.WARNING)
