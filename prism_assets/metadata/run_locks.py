"""A session lock for each run that works for an orchestrator: it is held as long as the process that does the run."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text

from prism_assets.domain.errors import PrismError
from prism_assets.metadata.database import Database
from prism_assets.metadata.locks import RUN_CLASS

_LOOK_SECONDS = 15.0
_RETRY_SECONDS = 2.0
_LAST_LOOK_SECONDS = 10.0


@contextmanager
def run_lock(database: Database, run_id: str) -> Iterator[None]:
    """Holds the lock of a run. PostgreSQL gives it back when the process dies, however it dies, or stands still.

    It goes with its session also when PostgreSQL restarts or fails over; it is then taken again over a new one.
    """
    keeper = _LockThread(database, run_id)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class _LockThread:
    """Takes the lock in a thread that looks after it. The thread ends with the process whatever it does."""

    def __init__(self, database: Database, run_id: str) -> None:
        self._database = database
        self._run_id = run_id
        self._stop = threading.Event()
        self._tried = threading.Event()
        self._error: PrismError | None = None
        self._thread = threading.Thread(target=self._run, name="prism-run-lock", daemon=True)

    def start(self) -> None:
        """Returns when the lock is taken; what the first try meets is raised."""
        self._thread.start()
        self._tried.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Gives the lock back. A thread that waits for a server that is gone is left to itself."""
        self._stop.set()
        self._thread.join(_LAST_LOOK_SECONDS)

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
        """Holds the lock over one session until the run ends or the lock is lost, with its session or otherwise."""
        try:
            with self._database.connect() as connection:
                _take(connection, self._run_id)
                self._tried.set()
                while _holds(connection, self._run_id):
                    if self._stop.wait(_LOOK_SECONDS):
                        _release(connection, self._run_id)
                        return
        except PrismError as error:
            if not self._tried.is_set():
                self._error = error


def _take(connection: Connection, run_id: str) -> None:
    """Without waiting: the session that was lost may hold it until PostgreSQL notices, and is then tried again."""
    connection.execute(text("SELECT pg_try_advisory_lock(:class, hashtext(:run))"), {"class": RUN_CLASS, "run": run_id})


def _holds(connection: Connection, run_id: str) -> bool:
    return bool(connection.execute(text(_HOLDS), {"class": RUN_CLASS, "run": run_id}).scalar_one())


_HOLDS = """
SELECT EXISTS (SELECT 1 FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() AND classid = :class
        AND objid = (hashtext(:run)::bigint & 4294967295)::oid)
"""


def _release(connection: Connection, run_id: str) -> None:
    connection.execute(text("SELECT pg_advisory_unlock(:class, hashtext(:run))"), {"class": RUN_CLASS, "run": run_id})


def runs_without_lock(database: Database, run_ids: Collection[str]) -> set[str]:
    """Those of the runs that no living process holds the lock of. Takes no locks."""
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
