"""Real servers for tests: RabbitMQ, MariaDB and PostgreSQL, each private to one test run.

Every function is a context manager that starts a server of its own on free loopback ports, with its data in a
temporary directory, waits until it answers, and at the end stops exactly the processes that it started:

    with mariadb() as server:
        engine = create_engine(server.create_database("cell1"))

The servers that Debian's packages may have started are never used or touched. A run as root gives each server the
unprivileged user of its package; any other user runs them as itself. A missing program skips the test plainly,
unless KILONOVA_REQUIRE_SERVICES is set (as `make test` does), which makes it a failure.
"""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TypeVar

import psycopg
import pymysql
import pytest

from kilonova.embedded.install import is_installed
from kilonova.embedded.prefix import find_prefix

START_SECONDS = 90.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.05

S = TypeVar("S", bound="Server")


class ServerFailed(RuntimeError):
    """A server ended or stayed silent while it should have been starting; the text holds the end of its log."""


def lack(reason: str) -> NoReturn:
    """Skip the test with the reason; fail it where everything is required to be there."""
    if os.environ.get("KILONOVA_REQUIRE_SERVICES"):
        pytest.fail(reason)
    pytest.skip(reason)


def need_neighbours() -> None:
    """The neighbours are installed, or there is nothing to test."""
    if not is_installed(find_prefix()):
        lack("the neighbours are not installed here: make neighbours")


def find_program(name: str, *folders: str) -> str:
    """The path of `name` in `folders` or PATH; skips (or fails) the test when there is none."""
    path = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if path is None:
        lack(f"{name} is not installed: run `make system` as root")
    return path


def find_free_ports(count: int) -> list[int]:
    """`count` different loopback ports that nothing listens on, below the range of outgoing connections."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randint(20000, 32000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)


def _account(name: str) -> str | None:
    """The user a server runs as: `name` (else nobody) when we are root, ourselves (None) otherwise."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam(name).pw_name
    return "nobody"


class Server(ABC):
    """One private server: its data directory, its processes, and start, stop, kill and restart."""

    program: str

    def __init__(self, *, account: str) -> None:
        self.user = _account(account)
        self.directory = Path(tempfile.mkdtemp(prefix=f"kilonova-{self.program}-"))
        self.log = self.directory / "server.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        if self.user is not None:
            shutil.chown(self.directory, self.user, pwd.getpwnam(self.user).pw_gid)

    @abstractmethod
    def prepare(self) -> None:
        """Lay out the data directory, once, before the first start."""

    @abstractmethod
    def start(self) -> None:
        """Start the server on the same ports and data as before and wait until it answers."""

    def stop(self) -> None:
        """Ask the server to end, and wait for it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once, as a power failure would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start with the data kept: what clients see when an operator restarts it."""
        self.stop()
        self.start()

    def discard(self) -> None:
        """Stop whatever still runs and remove the data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _identity(self) -> dict[str, str | int | Sequence[str]]:
        if self.user is None:
            return {}
        return {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}

    def _run(self, command: Sequence[str]) -> None:
        with self.log.open("ab") as log:
            ended = subprocess.run(  # type: ignore[call-overload]
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=START_SECONDS,
                check=False,
                **self._identity(),
            )
        if ended.returncode != 0:
            raise ServerFailed(f"{command[0]} ended with {ended.returncode}:\n{self._log_end()}")

    def _spawn(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> None:
        with self.log.open("ab") as log:
            process = subprocess.Popen(  # type: ignore[call-overload]
                command,
                cwd=self.directory,
                env=None if environment is None else {**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity(),
            )
        self._processes.append(process)

    def _wait_ready(self, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not answers():
            dead = [process for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                reason = f"ended with {dead[0].returncode}" if dead else f"gave no answer in {START_SECONDS:.0f} s"
                self.kill()
                raise ServerFailed(f"{self.program} {reason}:\n{self._log_end()}")
            time.sleep(POLL_SECONDS)

    def _end(self, how: signal.Signals) -> None:
        for process in reversed(self._processes):
            _end_group(process, how=how)
        self._processes.clear()

    def _log_end(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


def _end_group(process: subprocess.Popen[bytes], *, how: signal.Signals) -> None:
    """Signal the process and its children (each server leads a session of its own), and reap it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)


class RabbitMQ(Server):
    """A broker with an Erlang port mapper of its own, so that nodes of other runs cannot meet it.

    `url` is a transport URL as oslo.messaging takes it.
    """

    program = "rabbitmq"

    def __init__(self) -> None:
        self._server = find_program("rabbitmq-server", *_newest_folders("/usr/lib/rabbitmq/lib", "*/sbin"))
        self._epmd = find_program("epmd", *_newest_folders("/usr/lib/erlang", "erts-*/bin"))
        super().__init__(account="rabbitmq")
        self.port, self._dist_port, self._epmd_port = find_free_ports(3)
        self.url = f"rabbit://guest:guest@127.0.0.1:{self.port}/"
        self._beam_pid = self.directory / "beam.pid"

    def prepare(self) -> None:
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{self.port}\n"
            "disk_free_limit.absolute = 50MB\nvm_memory_high_watermark.absolute = 1GB\n"
        )
        (self.directory / "enabled_plugins").write_text("[].\n")

    def start(self) -> None:
        environment = self._environment()
        self._spawn(
            [self._epmd, "-port", str(self._epmd_port), "-address", "127.0.0.1"],
            environment=environment,
        )
        self._wait_ready(lambda: _accepts(self._epmd_port))
        self._spawn([self._server], environment=environment)
        self._wait_ready(lambda: _speaks_amqp(self.port))

    def stop(self) -> None:
        """Ask the node itself to end (its start script would first start a second Erlang to ask it)."""
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(int(self._beam_pid.read_text()), signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._processes[-1].wait(STOP_SECONDS)
        self.kill()

    def create_vhosts(self, *names: str) -> None:
        """Make virtual hosts that the user of `url` may use; `vhost_url` answers their URLs."""
        control = find_program("rabbitmqctl", *_newest_folders("/usr/lib/rabbitmq/lib", "*/sbin"))
        made = [
            f'rabbit_vhost:add(<<"{name}">>, <<"guest">>), rabbit_auth_backend_internal:set_permissions(<<"guest">>, '
            f'<<"{name}">>, <<".*">>, <<".*">>, <<".*">>, <<"guest">>)'
            for name in names
        ]
        settings = [f"{key}={value}" for key, value in self._environment().items()]
        self._run(["env", *settings, control, "eval", ", ".join(made) + "."])

    def vhost_url(self, name: str) -> str:
        """The transport URL of a virtual host."""
        return f"{self.url}{name}"

    def _environment(self) -> dict[str, str]:
        base = str(self.directory)
        return {
            "HOME": base,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"kilonova{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONFIG_FILE": f"{base}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{base}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": f"{base}/rabbitmq-env.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{base}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{base}/mnesia",
            "RABBITMQ_LOG_BASE": f"{base}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self._beam_pid),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
        }


class Database(Server):
    """A database server; `create_database` gives SQLAlchemy URLs."""

    port: int

    @abstractmethod
    def url(self, database: str) -> str:
        """The SQLAlchemy URL of `database` on this server."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run one administrator's statement."""

    def create_database(self, name: str) -> str:
        """Create the database `name` anew (dropping an older one) and answer its SQLAlchemy URL."""
        self.execute(f"DROP DATABASE IF EXISTS {name}")
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except (pymysql.err.OperationalError, psycopg.OperationalError):
            return False
        return True


class MariaDB(Database):
    """MariaDB with utf8mb4, strict mode as shipped, and durability switched off for speed."""

    program = "mariadb"

    def __init__(self) -> None:
        self._server = find_program("mariadbd")
        self._installer = find_program("mariadb-install-db")
        super().__init__(account="mysql")
        self.port = find_free_ports(1)[0]
        self._first_sql = self.directory / "first.sql"

    def prepare(self) -> None:
        self._first_sql.write_text(
            "CREATE USER IF NOT EXISTS kilonova@'%' IDENTIFIED BY 'kilonova';\n"
            "GRANT ALL PRIVILEGES ON *.* TO kilonova@'%' WITH GRANT OPTION;\n"
        )
        data = f"--datadir={self.directory}/data"
        self._run(
            [self._installer, "--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal", data]
        )

    def start(self) -> None:
        base = self.directory
        self._spawn(
            [
                *(self._server, "--no-defaults", f"--datadir={base}/data", f"--socket={base}/sock"),
                *(f"--pid-file={base}/pid", "--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve"),
                *(f"--init-file={self._first_sql}", "--character-set-server=utf8mb4", "--skip-log-bin"),
                *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=128M", "--max-connections=300"),
                *("--innodb-use-native-aio=0", "--innodb-log-file-size=32M"),
            ]
        )
        self._wait_ready(self._answers)

    def url(self, database: str) -> str:
        return f"mysql+pymysql://kilonova:kilonova@127.0.0.1:{self.port}/{database}?charset=utf8mb4"

    def execute(self, statement: str) -> None:
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="kilonova", password="kilonova", autocommit=True
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)


class PostgreSQL(Database):
    """PostgreSQL with trusted loopback logins and durability switched off for speed."""

    program = "postgresql"

    def __init__(self) -> None:
        folders = _newest_folders("/usr/lib/postgresql", "*/bin")
        self._server = find_program("postgres", *folders)
        self._initdb = find_program("initdb", *folders)
        super().__init__(account="postgres")
        self.port = find_free_ports(1)[0]

    def prepare(self) -> None:
        self._run(
            [
                *(self._initdb, "-D", f"{self.directory}/data", "-U", "kilonova", "--auth=trust"),
                *("--no-sync", "-E", "UTF8", "--locale=C.UTF-8"),
            ]
        )

    def start(self) -> None:
        self._spawn(
            [
                *(self._server, "-D", f"{self.directory}/data", "-h", "127.0.0.1", "-p", str(self.port)),
                *("-k", str(self.directory), "-F", "-c", "max_connections=300", "-c", "synchronous_commit=off"),
            ]
        )
        self._wait_ready(self._answers)

    def stop(self) -> None:
        """Fast shutdown: open sessions are cut, as at an operator's restart."""
        self._end(signal.SIGINT)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://kilonova@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        where = f"host=127.0.0.1 port={self.port} user=kilonova dbname=postgres connect_timeout=5"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statement.encode())


def _newest_folders(root: str, pattern: str) -> list[str]:
    return [str(folder) for folder in sorted(Path(root).glob(pattern), reverse=True)]


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False


def _speaks_amqp(port: int) -> bool:
    """Whether the broker answers an AMQP 0-9-1 header with Connection.Start: the port opens before it is ready."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return connection.recv(1) == b"\x01"
    return False


@contextmanager
def _running(make: Callable[[], S]) -> Iterator[S]:
    server = make()
    try:
        server.prepare()
        server.start()
        yield server
        server.stop()
    finally:
        server.discard()


@contextmanager
def rabbitmq() -> Iterator[RabbitMQ]:
    """A RabbitMQ broker: `.url`, `.stop()`, `.kill()`, `.start()`, `.restart()`."""
    with _running(RabbitMQ) as server:
        yield server


@contextmanager
def mariadb() -> Iterator[MariaDB]:
    """A MariaDB server: `.create_database(name)` answers an SQLAlchemy URL."""
    with _running(MariaDB) as server:
        yield server


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server: `.create_database(name)` answers an SQLAlchemy URL."""
    with _running(PostgreSQL) as server:
        yield server
