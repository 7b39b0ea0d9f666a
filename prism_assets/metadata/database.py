"""Connections to PostgreSQL. All errors of the driver leave here as errors of the error tree."""

from __future__ import annotations

import copy
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from prism_assets.domain.errors import DatabaseUnavailable, InvariantBroken, TerminalError
from prism_assets.metadata.locks import MIGRATION
from prism_assets.metadata.session_holders import describe_holders
from prism_assets.transactions import inside_transaction

SESSIONS_KEPT, MOST_SESSIONS = 5, 20
"""Sessions that a process keeps between transactions, and has at any moment; the next transaction waits for one."""
_LONGEST_SESSION_SECONDS = 600
"""Age at which a session is replaced: a server process keeps what it has cached until it ends."""
_CONNECT_SECONDS = 5
# A worker that stands still inside a transaction holds locks that all others wait for, and no lease ends that.
_SESSION_OPTIONS = {"idle_in_transaction_session_timeout": "60s", "lock_timeout": "30s"}
_SILENT_SESSION_SECONDS = 60
_TRANSIENT_STATES = (
    "40001",
    "40P01",
    "57014",
    "57P01",
    "57P02",
    "57P03",
    "57P05",
    "53300",
    "25P03",
    "25006",
    "55P03",
    "08",
)
_ENDED = {
    "25P03": "ended this session, which stood still in a transaction for longer than idle_in_transaction_session_timeout",
    "57P05": "ended this session, which was silent for longer than idle_session_timeout: its process stood still",
    "57P01": "ended this session: an administrator terminated it, or the server is being stopped",
    "57P02": "ended all sessions, as one of its processes crashed",
    "57P03": "takes no sessions now: it is starting or being stopped",
    "25006": "takes no changes, as a standby does: check that PRISM_DATABASE_URL names the primary",
}
_NO_ROOM = ("too many clients", "too many connections", "connection slots are reserved")
"""A session that never began has no state to tell by."""
_MIGRATION_PATIENCE = 3_600.0
_MIGRATION_PAUSE = 0.1
_LEAST_SECONDS = 1.0
"""What a statement always gets: where little time is left, short questions must still be answered."""
_LONGEST_SECONDS = 86_400.0


@dataclass(frozen=True)
class Keepalive:
    """After how many silent seconds one side of a connection asks whether the other is still there, and gives it up.

    For both sides: by the defaults of an operating system a session whose host vanished, and its locks, live for hours.
    """

    idle: int = 30
    interval: int = 10
    count: int = 3

    @property
    def longest(self) -> int:
        """Seconds after which a vanished host is given up, also where what was sent to it is still unanswered."""
        return self.idle + self.interval * self.count

    @property
    def of_server(self) -> dict[str, str]:
        """Settings of a session: what the server does when the client vanishes."""
        return {
            "tcp_keepalives_idle": str(self.idle),
            "tcp_keepalives_interval": str(self.interval),
            "tcp_keepalives_count": str(self.count),
            "tcp_user_timeout": f"{self.longest}s",
        }

    @property
    def of_client(self) -> dict[str, int]:
        """Parameters of a connection: what the client does when the server vanishes."""
        return {
            "keepalives_idle": self.idle,
            "keepalives_interval": self.interval,
            "keepalives_count": self.count,
            "tcp_user_timeout": self.longest * 1000,
        }


def worker_name() -> str:
    """Names this process in batches and jobs: `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Database:
    """PostgreSQL as the stages see it: transactions that commit on success, and typed errors.

    `seconds_left` tells, where time is short, how long a statement may take; DatabaseUnavailable if it takes longer.
    """

    def __init__(
        self, url: str, seconds_left: Callable[[], float] | None = None, keepalive: Keepalive | None = None
    ) -> None:
        self._url = sqlalchemy.make_url(url)
        self._engine = _create_engine(self._url, keepalive or Keepalive())
        self._seconds_left = seconds_left

    def with_deadline(self, seconds_left: Callable[[], float]) -> Database:
        """Returns this database, over the same sessions, with statements that end in time."""
        made = copy.copy(self)
        made._seconds_left = seconds_left
        return made

    def __repr__(self) -> str:
        return f"Database({self._url.render_as_string(hide_password=True)})"

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One READ COMMITTED transaction: committed when the block ends, rolled back when it raises."""
        with _translated(self._url), self._engine.begin() as connection, inside_transaction():
            if self._seconds_left is not None:
                _limit_statements(connection, max(_LEAST_SECONDS, self._seconds_left()))
            yield connection

    @contextmanager
    def repeatable_read(self) -> Iterator[Connection]:
        """One transaction that changes nothing and whose statements all see the same moment: REPEATABLE READ."""
        with _translated(self._url), self._engine.begin() as connection, inside_transaction():
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            if self._seconds_left is not None:
                _limit_statements(connection, max(_LEAST_SECONDS, self._seconds_left()))
            yield connection

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """A session of its own in autocommit mode, for locks that outlive transactions; it ends with the block.

        PostgreSQL ends it, and so its locks, when it was silent for a minute: its process stands still.
        """
        with _translated(self._url), self._engine.connect() as connection:
            made = connection.execution_options(isolation_level="AUTOCOMMIT")
            limit = {"limit": f"{_SILENT_SESSION_SECONDS}s"}
            made.execute(text("SELECT set_config('idle_session_timeout', :limit, false)"), limit)
            try:
                yield made
            finally:
                connection.invalidate()

    def migrate(self) -> None:
        """Brings the schema up to date; several callers at once wait for each other.

        Each migration is a transaction of its own, or a few: dying between them leaves the schema of an older version,
        and the next call goes on there. A new database, which nobody uses yet, takes them all in one. The session ends
        with the call, and gives back its lock and settings. No deadline cuts it off: it would begin anew and never end.
        """
        # Alembic takes a twentieth of what all else takes to import, and only this needs it.
        import alembic.command
        import alembic.config

        config = alembic.config.Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with _translated(self._url), self._engine.connect() as connection:
            try:
                _wait_for_turn(connection, _MIGRATION_PATIENCE if self._seconds_left is None else self._seconds_left())
                config.attributes["connection"] = connection
                config.attributes["one_transaction"] = _is_new(connection)
                alembic.command.upgrade(config, "head")
            finally:
                connection.invalidate()

    def has_table(self, name: str) -> bool:
        """Tells whether a table is there; before the first migration none is."""
        with self.begin() as connection:
            return bool(connection.execute(text("SELECT to_regclass(:name) IS NOT NULL"), {"name": name}).scalar_one())

    def dispose(self) -> None:
        """Closes all pooled connections."""
        self._engine.dispose()


def _create_engine(url: sqlalchemy.URL, keepalive: Keepalive) -> Engine:
    settings = {**_SESSION_OPTIONS, **keepalive.of_server}
    engine = sqlalchemy.create_engine(
        url,
        pool_size=SESSIONS_KEPT,
        max_overflow=MOST_SESSIONS - SESSIONS_KEPT,
        pool_timeout=30,
        pool_use_lifo=True,
        pool_recycle=_LONGEST_SESSION_SECONDS,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "prism_assets",
            "options": " ".join(f"-c {key}={value}" for key, value in settings.items()),
            **keepalive.of_client,
        },
    )

    # Under REPEATABLE READ, which a server may have as its default, what is read under a lock may be older than the lock.
    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET TIME ZONE 'UTC'; SET default_transaction_isolation = 'read committed'")
        connection.commit()

    return engine


def _wait_for_turn(connection: Connection, seconds: float) -> None:
    """Takes the session lock of migrations, asking again and again.

    A session that waits inside a statement has a snapshot, for the end of which CREATE INDEX CONCURRENTLY would wait.
    """
    end = time.monotonic() + seconds
    statement = text("SELECT pg_try_advisory_lock(:lock)")
    while not connection.execute(statement, {"lock": MIGRATION}).scalar_one():
        connection.commit()
        if time.monotonic() > end:
            raise DatabaseUnavailable("another process still brings the schema up to date; repeat when it is done")
        time.sleep(_MIGRATION_PAUSE)
    connection.commit()


def _is_new(connection: Connection) -> bool:
    new = bool(connection.execute(text("SELECT to_regclass('alembic_version') IS NULL")).scalar_one())
    connection.commit()
    return new


def _limit_statements(connection: Connection, seconds: float) -> None:
    """Lets PostgreSQL cancel statements of this transaction that take longer; 0 for none."""
    limit = math.ceil(min(seconds, _LONGEST_SECONDS) * 1000)
    connection.execute(text("SELECT set_config('statement_timeout', :limit, true)"), {"limit": f"{limit}ms"})


@contextmanager
def _translated(url: sqlalchemy.URL) -> Iterator[None]:
    try:
        yield
    except PoolTimeout as error:
        raise DatabaseUnavailable(
            f"all {MOST_SESSIONS} database sessions of this process are in use; repeat"
        ) from error
    except DBAPIError as error:
        raise _named(error, url) from error
    except SQLAlchemyError as error:
        raise TerminalError(f"PostgreSQL: {_first_line(error)}") from error


def _named(error: DBAPIError, url: sqlalchemy.URL) -> Exception:
    state = getattr(error.orig, "sqlstate", None) or ""
    where = f"{url.host}:{url.port or 5432}"
    message = _first_line(error.orig)
    if "authentication failed" in message:
        return TerminalError(f"PostgreSQL at {where} refused user {url.username}: check PRISM_DATABASE_URL")
    if re.search(r'database ".*" does not exist', message):
        return TerminalError(f"PostgreSQL at {where} has no database {url.database}: create it or correct the URL")
    if state == "42P01":
        return TerminalError("the database has no prism tables of this version yet: run `prism table apply` first")
    if state == "42703":
        return TerminalError("the database has the tables of an older version: run `prism table apply` first")
    if state.startswith(("22", "23")):
        return InvariantBroken(f"PostgreSQL refused an inconsistent change: {message}")
    if state == "53300" or any(words in message for words in _NO_ROOM):
        return DatabaseUnavailable(
            f"PostgreSQL at {where} has no session left: {describe_holders(url)}; end what should not hold them, or "
            "raise max_connections; nothing is half done, repeat"
        )
    if state in _ENDED:
        return DatabaseUnavailable(f"PostgreSQL at {where} {_ENDED[state]}; nothing is half done, repeat")
    if state.startswith(_TRANSIENT_STATES):
        return DatabaseUnavailable(f"PostgreSQL at {where} interrupted the work ({message}); it is safe to repeat")
    if "resolve host" in message:
        return DatabaseUnavailable(f"the host {url.host} is not known: check PRISM_DATABASE_URL, or repeat later")
    if error.connection_invalidated:
        return DatabaseUnavailable(
            f"the connection to PostgreSQL at {where} was cut in the middle; nothing is half done, repeat"
        )
    if isinstance(error, OperationalError):
        return DatabaseUnavailable(f"PostgreSQL at {where} does not answer: start it (`prism local up`) and repeat")
    return TerminalError(f"PostgreSQL: {message}")


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
