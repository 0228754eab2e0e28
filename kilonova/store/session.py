"""A database: consistent reads, and writes that are tried again when the database asks for it.

A write is a function of a transaction. It is run from its start again after a deadlock, a lock that did not come, or a
connection lost before the commit; so it must do nothing but read and write this database. When the connection breaks
during the commit itself, nobody knows whether it was done: that is said (DatabaseUnavailable), not guessed.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from sqlalchemy import Connection, CursorResult, Executable, Row, exc

from kilonova.base import log
from kilonova.base.errors import BadRequest, DatabaseUnavailable
from kilonova.store import engines
from kilonova.store.failures import Failure, classify

LOG = log.of(__name__)
R = TypeVar("R")
Schema = Literal["api", "cell"]
AnyRow: TypeAlias = Row[*tuple[Any, ...]]


class Tx:
    """An open transaction. ``schema`` says which tables are there, ``dialect`` is sqlite, mysql or postgresql."""

    def __init__(self, connection: Connection, *, schema: Schema) -> None:
        self.connection = connection
        self.schema = schema
        self.dialect = connection.dialect.name

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Run a statement (with a list of parameters: once for each)."""
        result = self.connection.execute(statement, parameters)
        assert isinstance(result, CursorResult)
        return result

    def rows(self, statement: Executable) -> Sequence[AnyRow]:
        """All rows of a query."""
        return self.connection.execute(statement).all()

    def row(self, statement: Executable) -> AnyRow | None:
        """The first row of a query, or None."""
        return self.connection.execute(statement).first()

    def scalar(self, statement: Executable) -> Any:
        """The first column of the first row of a query, or None."""
        return self.connection.execute(statement).scalar()

    def changes(self, statement: Executable) -> int:
        """Run an UPDATE or DELETE: how many rows it met."""
        return self.execute(statement).rowcount


class Database:
    """One database and its connections. Threads share it; it connects at the first use.

    ``patience``: seconds that a write or ``query`` is tried again; ``reach``: the same while there is no connection.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: Schema,
        name: str = "",
        pool_size: int = 20,
        patience: float = 15.0,
        reach: float = 3.0,
    ) -> None:
        self.schema: Schema = schema
        self.name = name or schema
        self._engines = engines.connect(url, pool_size=pool_size, patience=patience)
        self._patience, self._reach = patience, reach
        # SQLite lets one writer in; its own waiting is a poll, so the writers of this process queue here instead.
        self._turn: threading.Lock | None = None if self._engines.remote else threading.Lock()
        self._local = threading.local()

    @property
    def remote(self) -> bool:
        """Whether it is behind a network."""
        return self._engines.remote

    @contextlib.contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction that sees one state of the database and cannot write. DatabaseUnavailable, BadRequest."""
        try:
            with self._engines.reading.connect() as connection, connection.begin():
                yield Tx(connection, schema=self.schema)
        except exc.SQLAlchemyError as error:
            raise self._translate(error) from error

    def query(self, fn: Callable[[Tx], R]) -> R:
        """The result of ``fn`` in one reading transaction; tried again when the connection breaks."""

        def attempt() -> R:
            with self._engines.reading.connect() as connection, connection.begin():
                return fn(Tx(connection, schema=self.schema))

        return self._insist(attempt)

    def write(self, fn: Callable[[Tx], R]) -> R:
        """The result of ``fn`` in one writing transaction, which is committed. An exception of ``fn`` undoes it."""
        if getattr(self._local, "writing", False):
            raise RuntimeError("a write within a write would wait for itself")
        self._local.writing = True
        try:
            return self._insist(lambda: self._attempt(fn))
        finally:
            self._local.writing = False

    def sync(self) -> None:
        """Bring the schema to the newest version (making it when there is none)."""
        from kilonova.store import migration

        def attempt() -> None:
            with self._turn_to_write(), self._engines.writing.connect() as connection:
                migration.sync(connection, self.schema)

        self._insist(attempt)

    def version(self) -> str | None:
        """The version of the schema, None when there is none."""
        from kilonova.store import migration

        return self.query(lambda tx: migration.version(tx.connection))

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        self._engines.reading.dispose()
        self._engines.writing.dispose()

    def _attempt(self, fn: Callable[[Tx], R]) -> R:
        with self._turn_to_write(), self._engines.writing.connect() as connection:
            transaction = connection.begin()
            try:
                result = fn(Tx(connection, schema=self.schema))
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except exc.DBAPIError as error:
                # A disk that is full undoes the change: that needs no care but telling.
                if classify(error) is not Failure.LOST:
                    raise
                message = f"The connection to the database of {self.name} broke while a change was being committed."
                raise DatabaseUnavailable(message, where=self.name) from error
            return result

    @contextlib.contextmanager
    def _turn_to_write(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=self._patience):
            raise DatabaseUnavailable(where=self.name)
        try:
            yield
        finally:
            self._turn.release()

    def _insist(self, attempt: Callable[[], R]) -> R:
        """Try until it works, fails for good, or patience is over."""
        began, pause = time.monotonic(), 0.01
        while True:
            try:
                return attempt()
            except exc.SQLAlchemyError as error:
                failure = classify(error)
                limit = {Failure.CONFLICT: self._patience, Failure.LOST: self._reach}.get(failure, 0.0)
                if isinstance(error, exc.TimeoutError) or time.monotonic() - began + pause > limit:
                    raise self._translate(error) from error
                LOG.info("the database of %s is asked again: %s", self.name, _brief(error))
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 0.5)

    def _translate(self, error: exc.SQLAlchemyError) -> Exception:
        match classify(error):
            case Failure.CONFLICT | Failure.LOST:
                LOG.warning("the database of %s is unavailable: %s", self.name, _brief(error))
                return DatabaseUnavailable(where=self.name)
            case Failure.FULL:
                LOG.error("the database of %s cannot be written: %s", self.name, _brief(error))
                message = f"The database of {self.name} has no room left on its disk."
                return DatabaseUnavailable(message, where=self.name)
            case Failure.PATTERN:
                return BadRequest("A filter is not a valid regular expression.")
            case Failure.TEXT:
                return BadRequest("A text may not contain the character NUL.")
        return error


def _brief(error: exc.SQLAlchemyError) -> str:
    """The driver's words without the statement and its values, which may hold secrets."""
    return str(error.orig if isinstance(error, exc.DBAPIError) else error)
