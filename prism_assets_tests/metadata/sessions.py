"""Several real connections; a test orders their statements one by one, also while some wait for a lock."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection, text

from prism_assets.metadata.database import Database

_T = TypeVar("_T")
_PATIENCE = 120


class Session:
    """One connection with an open transaction. A separate thread runs its statements, so they may wait."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1)
        self._transaction = database.begin()
        self._open = True
        self._connection = self._thread.submit(self._transaction.__enter__).result()
        self._pid = self.do(lambda connection: connection.execute(text("SELECT pg_backend_pid()")).scalar_one())

    def start(self, work: Callable[[Connection], _T]) -> Future[_T]:
        """Begins some statements and does not wait for them."""
        return self._thread.submit(work, self._connection)

    def do(self, work: Callable[[Connection], _T]) -> _T:
        """Runs some statements to their end."""
        return self.start(work).result(timeout=_PATIENCE)

    def sql(self, statement: str, **parameters: Any) -> Any:
        """Runs one statement. Returns its rows, or None without any."""

        def run(connection: Connection) -> Any:
            result = connection.execute(text(statement), parameters)
            return result.all() if result.returns_rows else None

        return self.do(run)

    def commit(self) -> None:
        """Commits; waits for statements begun before."""
        self._open = False
        self._thread.submit(self._transaction.__exit__, None, None, None).result(timeout=_PATIENCE)

    def close(self) -> None:
        """Rolls back uncommitted work."""
        if self._open:
            self._open = False
            self._thread.submit(self._connection.rollback).result(timeout=_PATIENCE)
            self._thread.submit(self._transaction.__exit__, None, None, None).result(timeout=_PATIENCE)
        self._thread.shutdown()

    def wait_until_blocked(self) -> None:
        """Returns once the session waits for a lock. Fails if this never happens."""
        deadline = time.monotonic() + _PATIENCE
        statement = text("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = :pid")
        while time.monotonic() < deadline:
            with self._database.begin() as connection:
                if connection.execute(statement, {"pid": self._pid}).scalar_one():
                    return
            time.sleep(0.005)
        raise AssertionError("the session does not wait for any lock")


class Sessions:
    """Opens sessions, and closes them however the test ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._made: list[Session] = []

    def open(self) -> Session:
        """A new session."""
        self._made.append(Session(self._database))
        return self._made[-1]

    def close(self) -> None:
        """Closes all sessions, the latest first."""
        for session in reversed(self._made):
            session.close()
