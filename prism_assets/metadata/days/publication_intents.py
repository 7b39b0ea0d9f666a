"""Statements on prism_publication_intents: runs whose calls may still reach a catalog. Until then runs compare it.

A call may land long after its caller died. Each run therefore writes an intent before it touches the catalog, and
removes it after all its calls were answered. Another run removes the intent only after a full comparison that began
when these calls could no longer land. All times are the database's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.publishers import words_of
from prism_assets.metadata.leases import Lease


@dataclass(frozen=True, kw_only=True)
class ComparisonDue:
    """Why a publisher's catalog may differ from a table's record."""

    publisher: str
    intents: int
    """Runs that touched the catalog without a known end."""
    worker: str | None
    """The worker of the first such run."""
    since: datetime | None
    """The start of the first such run. None if the last comparison is too old to rely on the record."""

    def __str__(self) -> str:
        catalog = words_of(self.publisher).catalog
        if self.since is None:
            return f"it was not compared with {catalog} for too long"
        more = f" (and {self.intents - 1} more)" if self.intents > 1 else ""
        return (
            f"a publication by {self.worker}, begun at {self.since:%Y-%m-%d %H:%M:%S}Z{more}, was not seen to end: what "
            f"it sent may still change {catalog}"
        )


def load_comparisons_due(
    connection: Connection, table_ids: Collection[int], compare_seconds: float, lease_seconds: float | None
) -> dict[tuple[int, str], ComparisonDue]:
    """Returns the tables the next catalog run must compare with a catalog, by id and publisher. Reads without locks.

    Callers without the lease pass `lease_seconds`, so that intents of living runs do not count. For the run with the
    lease, every other intent belongs to a finished run.
    """
    rows = connection.execute(
        text(_COMPARISONS_DUE), {"tables": list(table_ids), "lease": lease_seconds, "compare": compare_seconds}
    )
    return {
        (row.prism_table_id, row.publisher): ComparisonDue(
            publisher=row.publisher, intents=row.intents, worker=row.worker, since=row.since
        )
        for row in rows
    }


_COMPARISONS_DUE = """
SELECT * FROM (
    SELECT t.prism_table_id, t.publisher, n.*,
        t.compared_time < clock_timestamp() - make_interval(secs => :compare) AS stale
    FROM prism_table_publications t CROSS JOIN LATERAL (
        SELECT count(*) AS intents, min(p.start_time) AS since, (array_agg(p.worker ORDER BY p.start_time))[1] AS worker
        FROM prism_publication_intents p
        WHERE p.prism_table_id = t.prism_table_id AND p.publisher = t.publisher AND NOT EXISTS (
            SELECT 1 FROM prism_leases l WHERE l.kind = 'catalog' AND l.subject_id = p.prism_table_id
                AND l.lease_token = p.lease_token
                AND l.heartbeat_time >= clock_timestamp() - make_interval(secs => CAST(:lease AS double precision)))) n
    WHERE t.prism_table_id = ANY(:tables)
) d WHERE intents > 0 OR stale ORDER BY prism_table_id, publisher
"""


def add_intent(connection: Connection, lease: Lease, worker: str, publisher: str) -> int:
    """Adds an intent before a catalog is touched. Returns its id. Locks no row."""
    values = {"table": lease.subject_id, "token": lease.token, "worker": worker, "publisher": publisher}
    return int(connection.execute(text(_ADD_INTENT), values).scalar_one())


_ADD_INTENT = """
INSERT INTO prism_publication_intents (prism_table_id, publisher, lease_token, worker, start_time, expire_time)
VALUES (:table, :publisher, CAST(:token AS uuid), :worker, clock_timestamp(), clock_timestamp())
RETURNING prism_publication_intent_id
"""


def lock_intent(connection: Connection, intent_id: int) -> bool:
    """Locks an intent. Returns False if another run removed it because none of its calls could still land."""
    return connection.execute(text(_LOCK_INTENT), {"intent": intent_id}).scalar() is not None


_LOCK_INTENT = "SELECT 1 FROM prism_publication_intents WHERE prism_publication_intent_id = :intent FOR UPDATE"


def begin_call(connection: Connection, intent_id: int, longest_seconds: float) -> None:
    """Records, before a changing call, how long it may take to land. Locks the intent."""
    connection.execute(text(_BEGIN_CALL), {"intent": intent_id, "longest": longest_seconds})


_BEGIN_CALL = """
UPDATE prism_publication_intents SET expire_time = clock_timestamp() + make_interval(secs => :longest)
WHERE prism_publication_intent_id = :intent
"""


def end_calls(connection: Connection, intent_id: int) -> None:
    """Records that all calls of a run so far were answered. Locks the intent."""
    connection.execute(text(_END_CALLS), {"intent": intent_id})


_END_CALLS = """
UPDATE prism_publication_intents SET expire_time = clock_timestamp()
WHERE prism_publication_intent_id = :intent
"""


def remove_intent(connection: Connection, intent_id: int) -> None:
    """Removes the intent of a finished run, unless one of its calls may still land. Locks the intent."""
    connection.execute(text(_REMOVE_INTENT), {"intent": intent_id})


_REMOVE_INTENT = """
DELETE FROM prism_publication_intents
WHERE prism_publication_intent_id = :intent AND expire_time <= clock_timestamp()
"""


def remove_expired(connection: Connection, table_id: int, publisher: str, time: datetime) -> None:
    """Removes intents whose calls could no longer land at `time`, before a comparison began. Locks those intents."""
    connection.execute(text(_REMOVE_EXPIRED), {"table": table_id, "publisher": publisher, "time": time})


_REMOVE_EXPIRED = """
DELETE FROM prism_publication_intents
WHERE prism_table_id = :table AND publisher = :publisher AND expire_time < :time
"""
