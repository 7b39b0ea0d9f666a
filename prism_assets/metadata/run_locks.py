"""A session lock for each run that works for an orchestrator: it is held as long as the process that does the run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import text

from prism_assets.metadata.database import Database

_RUN_CLASS = 7_170_005


@contextmanager
def run_lock(database: Database, run_id: str) -> Iterator[None]:
    """Holds the lock of a run. PostgreSQL gives it back when the process dies, however it dies."""
    with database.connect() as connection:
        connection.execute(
            text("SELECT pg_try_advisory_lock(:class, hashtext(:run))"), {"class": _RUN_CLASS, "run": run_id}
        )
        yield  # the connection goes back to its pool afterwards, which belongs to this run alone


def runs_without_lock(database: Database, run_ids: Collection[str]) -> set[str]:
    """Those of the runs that no living process holds the lock of."""
    with database.begin() as connection:
        rows = connection.execute(
            text(
                "SELECT run FROM unnest(CAST(:runs AS text[])) AS r (run) WHERE NOT EXISTS ("
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = :class "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
                "AND objid = (hashtext(run)::bigint & 4294967295)::oid)"
            ),
            {"runs": list(run_ids), "class": _RUN_CLASS},
        )
        return set(rows.scalars())
