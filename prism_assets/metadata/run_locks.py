"""A lock for each run of an orchestrator, held as long as the run's process lives.

The lock is an advisory lock of a transaction that stays open and does nothing else. A pooler gives the transaction its
own session until the end, and ends the session when the client is gone. Between two checks the transaction has no
snapshot, so it delays neither VACUUM nor CREATE INDEX CONCURRENTLY.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text

from prism_assets.domain.errors import PrismError
from prism_assets.metadata.database import Database
from prism_assets.metadata.locks import RUN_CLASS

_CHECK_SECONDS = 15.0
_RETRY_SECONDS = 2.0
_STOP_SECONDS = 10.0
_SILENT_SECONDS = 60.0
"""After this silence PostgreSQL ends the transaction and frees the lock, because the process stands still."""


@contextmanager
def run_lock(database: Database, run_id: str) -> Iterator[None]:
    """Holds the lock of a run. PostgreSQL frees it when the process dies in any way, or stands still.

    The lock is also lost with its session when PostgreSQL restarts or fails over. A new session then takes it again.
    """
    keeper = _LockThread(database, run_id)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class _LockThread:
    """Takes the lock in a thread and keeps it. The thread is a daemon, so it never outlives the process."""

    def __init__(self, database: Database, run_id: str) -> None:
        self._database = database
        self._run_id = run_id
        self._stop = threading.Event()
        self._tried = threading.Event()
        self._error: PrismError | None = None
        self._thread = threading.Thread(target=self._run, name="prism-run-lock", daemon=True)

    def start(self) -> None:
        """Returns when the lock is taken. Raises the error of the first attempt."""
        self._thread.start()
        self._tried.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Frees the lock. Does not wait for a thread that waits for an unreachable server."""
        self._stop.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._hold()
                if self._error is not None:
                    return
                self._stop.wait(_RETRY_SECONDS)
        finally:
            self._tried.set()

    def _hold(self) -> None:
        """Holds the lock by one transaction until the run ends, or until the lock is lost."""
        try:
            with self._database.begin() as connection:
                number = _take(connection, self._run_id)
                self._tried.set()
                while _holds(connection, number):
                    if self._stop.wait(_CHECK_SECONDS):
                        return
        except PrismError as error:
            if not self._tried.is_set():
                self._error = error


def _take(connection: Connection, run_id: str) -> int:
    """Tries to take the lock. Returns its second number in any case.

    Waits for nothing. A lost session may hold the lock until PostgreSQL notices; the thread then tries again.
    """
    connection.execute(text(_END_IF_SILENT), {"limit": f"{_SILENT_SECONDS * 1000:.0f}ms"})
    number = int(connection.execute(text("SELECT hashtext(:run)"), {"run": run_id}).scalar_one())
    connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({RUN_CLASS}, {number})")
    return number


# Since PostgreSQL 17 the server can also limit whole transactions.
_END_IF_SILENT = """
SELECT set_config(name, CASE name WHEN 'transaction_timeout' THEN '0' ELSE :limit END, true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""


def _holds(connection: Connection, number: int) -> bool:
    """Whether the session holds the lock.

    Uses no parameters: the portal of a statement with parameters keeps its snapshot until the next statement.
    """
    return bool(connection.exec_driver_sql(_HOLDS.format(lock=RUN_CLASS, number=number)).scalar_one())


_HOLDS = """
SELECT EXISTS (SELECT 1 FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() AND classid = {lock}
        AND objid = ({number}::bigint & 4294967295)::oid)
"""


def runs_without_lock(database: Database, run_ids: Collection[str]) -> set[str]:
    """Returns the runs whose lock no living process holds. Takes no locks."""
    with database.begin() as connection:
        rows = connection.execute(text(_WITHOUT_LOCK), {"runs": list(run_ids), "class": RUN_CLASS})
        return set(rows.scalars())


_WITHOUT_LOCK = """
SELECT run FROM unnest(CAST(:runs AS text[])) AS r (run)
WHERE NOT EXISTS (SELECT 1 FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND classid = :class
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND objid = (hashtext(run)::bigint & 4294967295)::oid)
"""
