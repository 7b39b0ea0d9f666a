"""Connections to PostgreSQL. Translates all driver errors into the error tree."""

from __future__ import annotations

import copy
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy
from sqlalchemy import Connection, text

from prism_assets.domain.errors import DatabaseUnavailable, WrongSchema
from prism_assets.metadata.database_errors import translated
from prism_assets.metadata.locks import MIGRATION
from prism_assets.metadata.schema_version import load_schema_version
from prism_assets.postgres import Keepalive, create_engine
from prism_assets.transactions import inside_transaction

SESSIONS_KEPT, MOST_SESSIONS = 5, 20
"""Sessions a process keeps between transactions, and opens at most; further transactions wait."""
_MIGRATION_PATIENCE = 3_600.0
_MIGRATION_PAUSE = 0.1
_LEAST_SECONDS = 1.0
"""The least time limit of a statement, so that short queries succeed even if little time is left."""
_LONGEST_SECONDS = 86_400.0


def worker_name() -> str:
    """Returns this process's name for batches and jobs: `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Database:
    """PostgreSQL for the stages: transactions that commit on success, and typed errors.

    If time is limited, `seconds_left` returns the limit of a statement. A statement over the limit raises
    DatabaseUnavailable.
    """

    def __init__(
        self, url: str, seconds_left: Callable[[], float] | None = None, keepalive: Keepalive | None = None
    ) -> None:
        self._url = sqlalchemy.make_url(url)
        self._engine = create_engine(self._url, kept=SESSIONS_KEPT, most=MOST_SESSIONS, keepalive=keepalive)
        self._seconds_left = seconds_left

    def with_deadline(self, seconds_left: Callable[[], float]) -> Database:
        """Returns this database, over the same sessions, with limited statements."""
        made = copy.copy(self)
        made._seconds_left = seconds_left
        return made

    def __repr__(self) -> str:
        return f"Database({self._url.render_as_string(hide_password=True)})"

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Runs one READ COMMITTED transaction: commits at the end of the block, rolls back if it raises."""
        with self._translated(), self._engine.begin() as connection, inside_transaction():
            if self._seconds_left is not None:
                _limit_statements(connection, max(_LEAST_SECONDS, self._seconds_left()))
            yield connection

    @contextmanager
    def repeatable_read(self) -> Iterator[Connection]:
        """Runs one read-only REPEATABLE READ transaction. All its statements see the same moment."""
        with self._translated(), self._engine.begin() as connection, inside_transaction():
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            if self._seconds_left is not None:
                _limit_statements(connection, max(_LEAST_SECONDS, self._seconds_left()))
            yield connection

    @contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """Runs each statement alone: heartbeats, and statements PostgreSQL refuses in a transaction, such as VACUUM.

        Each statement may use another session, so locks and settings do not last.
        """
        with self._translated(), self._engine.connect() as connection:
            with connection.begin():
                pass  # replaces a session that the server has ended
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def migrate(self) -> None:
        """Brings the schema up to date. Several concurrent callers wait for each other.

        Each migration is a transaction of its own, or a few. A death between them leaves the schema of an older
        version, and the next call continues there. A new, unused database takes all migrations in one transaction. No
        deadline cuts a migration off: it would start again and never end.

        The schema of the next release stays as it is. Raises WrongSchema for that of a later one.
        """
        # Imported here, because only migrations need Alembic and its import is slow.
        import alembic.command
        import alembic.config

        config = alembic.config.Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        patience = _MIGRATION_PATIENCE if self._seconds_left is None else self._seconds_left()
        with self._translated(), self._turn(patience) as turn, self._engine.connect() as connection:
            version = load_schema_version(connection)
            connection.rollback()  # each migration begins its own transaction
            if version.too_new:
                raise WrongSchema(version.too_new)
            if version.stored > version.known:
                return
            config.attributes["connection"] = connection
            config.attributes["turn"] = turn
            config.attributes["one_transaction"] = _is_new(connection)
            alembic.command.upgrade(config, "head")

    @contextmanager
    def _turn(self, seconds: float) -> Iterator[Connection]:
        """Holds the migration lock in a transaction of a second, otherwise idle session.

        A migration has several transactions, so none of them can hold the lock to the end. The lock is polled, because
        a waiting statement has a snapshot, and CREATE INDEX CONCURRENTLY would wait for it.
        """
        end = time.monotonic() + seconds
        statement = text("SELECT pg_try_advisory_xact_lock(:lock)")
        while True:
            with self._engine.begin() as connection:
                if connection.execute(statement, {"lock": MIGRATION}).scalar_one():
                    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
                    yield connection
                    return
            if time.monotonic() > end:
                raise DatabaseUnavailable("another process still brings the schema up to date; repeat when it is done")
            time.sleep(_MIGRATION_PAUSE)

    def has_table(self, name: str) -> bool:
        """Whether a table exists. No table does before the first migration."""
        with self.begin() as connection:
            return bool(connection.execute(text("SELECT to_regclass(:name) IS NOT NULL"), {"name": name}).scalar_one())

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._url, most_sessions=MOST_SESSIONS)

    def dispose(self) -> None:
        """Closes all pooled connections."""
        self._engine.dispose()


def _is_new(connection: Connection) -> bool:
    new = bool(connection.execute(text("SELECT to_regclass('alembic_version') IS NULL")).scalar_one())
    connection.commit()
    return new


def _limit_statements(connection: Connection, seconds: float) -> None:
    """Limits the statements of this transaction to `seconds`."""
    limit = math.ceil(min(seconds, _LONGEST_SECONDS) * 1000)
    connection.execute(text("SELECT set_config('statement_timeout', :limit, true)"), {"limit": f"{limit}ms"})
