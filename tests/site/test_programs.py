"""The programs alone: what they need, and how they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import requests

from kilonova.cmd import http
from kilonova.wsgi.compute import Lazy, config_files
from tests.site.people import User
from tests.site.site import BIN, Site, wait_for

HIDING = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("sqlalchemy", "alembic", "pymysql", "psycopg") or name.startswith("kilonova.store"):
            raise ImportError(f"a host must not need {name}")

sys.meta_path.insert(0, Hidden())
from kilonova.cmd.nova_compute import main
main()
"""


def test_a_host_runs_without_any_database_code(whole: Site, root: User) -> None:
    program = whole.programs["compute-1"]
    assert program.end() == 0
    usual = program.command
    try:
        program.command = [sys.executable, "-c", HIDING, *usual[1:]]
        program.start()
        wait_for(lambda: not whole.down(), what="the host is up")
        root.delete(root.boot_on("compute-1"))
        assert program.runs, program.text[-2000:]
    finally:
        program.end()
        program.command = usual


def test_hosts_files_name_no_database(whole: Site) -> None:
    program = whole.programs["compute-1"]
    files = [Path(part) for part in program.command if part.endswith(".conf")]
    assert files
    assert not [path for path in files if "database" in path.read_text()]


@pytest.mark.parametrize("program", ["nova-conductor", "nova-api", "nova-metadata-api"])
def test_who_needs_a_database_says_so(whole: Site, program: str) -> None:
    command = [str(BIN / program), *whole.conf("scheduler.conf", "quick.conf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "[api_database] connection is not set" in done.stderr
    assert "Traceback" not in done.stderr


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
        """Nothing."""


def test_the_api_runs_under_any_wsgi_server(whole: Site, demo: User) -> None:
    """A server that only imports ``kilonova.wsgi.compute:application``, configured by its environment."""
    code = (
        "import sys\nfrom wsgiref.simple_server import make_server\nfrom kilonova.wsgi.compute import application\n"
        "assert 'kilonova.store' not in sys.modules\n"
        "server = make_server('127.0.0.1', 0, application)\nprint(server.server_port, flush=True)\n"
        "server.handle_request()\nserver.handle_request()\n"
    )
    files = [part for part in whole.conf("controller.conf", "quick.conf") if part.endswith(".conf")]
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={"NOVA_CONF": ":".join(files)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
    headers = {"X-Auth-Token": demo.connection.auth_token}
    assert requests.get(url, timeout=60).json()["versions"][1]["version"] == "2.104"
    answer = requests.get(f"{url}/v2.1/servers", headers=headers, timeout=60)
    assert (answer.status_code, "servers" in answer.json()) == (200, True)
    assert process.wait(20) == 0


def test_a_wsgi_application_that_cannot_be_made_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> object:
        raise ValueError("[api_database] connection is not set")

    server = make_server("127.0.0.1", 0, Lazy(make), handler_class=Quiet)
    stop = http.serve(Lazy(make), ("127.0.0.1", server.server_port + 1), name="test", threads=1)
    try:
        answer = requests.get(f"http://127.0.0.1:{server.server_port + 1}/", timeout=10)
    finally:
        stop()
        server.server_close()
    assert answer.status_code == 503
    assert "api_database" not in answer.text


def test_files_are_named_as_operators_do() -> None:
    assert config_files({}, ["uwsgi"]) == []
    assert config_files({"NOVA_CONF": "a.conf:b.conf"}) == [Path("a.conf"), Path("b.conf")]
    assert config_files({"OS_NOVA_CONFIG_DIR": "etc", "OS_NOVA_CONFIG_FILES": "api.conf;x.conf"}) == [
        Path("etc/api.conf"),
        Path("etc/x.conf"),
    ]
    assert config_files({"OS_NOVA_CONFIG_DIR": "etc"}) == [Path("etc/nova.conf")]
    named = ["mod_wsgi", "--config-file", "a.conf", "--config-file=b.conf"]
    assert config_files({"NOVA_CONF": "c.conf"}, named) == [Path("a.conf"), Path("b.conf")]
