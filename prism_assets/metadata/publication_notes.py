"""Statements on prism_publication_notes: what may still be on its way to a catalog, and so has it compared.

A call may land long after its caller died. So each run notes that it is about to touch the catalog, before it does, and
takes its note back when it saw all of its calls answered. Notes of others are taken back only by a run that compared
everything after none of their calls could land any more. All times are the database's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.publishers import words_of
from prism_assets.metadata.leases import Lease


@dataclass(frozen=True, kw_only=True)
class ComparisonDue:
    """Why the catalog of a publisher may show something else than is recorded for a table.

    `notes` counts runs that touched it and were not seen to end; `worker` and `since` are those of the first one.
    `is_stale` if it was not compared for too long, after which nobody relies on the record.
    """

    publisher: str
    notes: int
    worker: str | None
    since: datetime | None
    is_stale: bool

    def __str__(self) -> str:
        catalog = words_of(self.publisher).catalog
        if self.since is None:
            return f"it was not compared with {catalog} for too long"
        more = f" (and {self.notes - 1} more)" if self.notes > 1 else ""
        return (
            f"a publication by {self.worker}, begun at {self.since:%Y-%m-%d %H:%M:%S}Z{more}, was not seen to end: what "
            f"it sent may still change {catalog}"
        )


def load_comparisons_due(
    connection: Connection, table_ids: Collection[int], compare_seconds: float, lease_seconds: float | None
) -> dict[tuple[int, str], ComparisonDue]:
    """The tables that the next catalog run has to compare with a catalog, by id and publisher, and why.

    Reads without locks.

    Whoever holds no lease gives `lease_seconds`: the note of a run that is alive is its own matter. To the run that
    holds the lease every note is one of a run that is over.
    """
    rows = connection.execute(
        text(_COMPARISONS_DUE), {"tables": list(table_ids), "lease": lease_seconds, "compare": compare_seconds}
    )
    return {
        (row.prism_table_id, row.publisher): ComparisonDue(
            publisher=row.publisher, notes=row.notes, worker=row.worker, since=row.since, is_stale=row.stale
        )
        for row in rows
    }


_COMPARISONS_DUE = """
SELECT * FROM (
    SELECT t.prism_table_id, t.publisher, n.*,
        t.compared_time < clock_timestamp() - make_interval(secs => :compare) AS stale
    FROM prism_table_publications t CROSS JOIN LATERAL (
        SELECT count(*) AS notes, min(p.start_time) AS since, (array_agg(p.worker ORDER BY p.start_time))[1] AS worker
        FROM prism_publication_notes p
        WHERE p.prism_table_id = t.prism_table_id AND p.publisher = t.publisher AND NOT EXISTS (
            SELECT 1 FROM prism_leases l WHERE l.kind = 'catalog' AND l.subject_id = p.prism_table_id
                AND l.lease_token = p.lease_token
                AND l.heartbeat_time >= clock_timestamp() - make_interval(secs => CAST(:lease AS double precision)))) n
    WHERE t.prism_table_id = ANY(:tables)
) d WHERE notes > 0 OR stale ORDER BY prism_table_id, publisher
"""


def add_note(connection: Connection, lease: Lease, worker: str, publisher: str) -> int:
    """Notes, before a catalog is touched, that it is about to be; returns the id of the note. Locks no row."""
    values = {"table": lease.subject_id, "token": lease.token, "worker": worker, "publisher": publisher}
    return int(connection.execute(text(_ADD_NOTE), values).scalar_one())


_ADD_NOTE = """
INSERT INTO prism_publication_notes (prism_table_id, publisher, lease_token, worker, start_time, expire_time)
VALUES (:table, :publisher, CAST(:token AS uuid), :worker, clock_timestamp(), clock_timestamp())
RETURNING prism_publication_note_id
"""


def lock_note(connection: Connection, note_id: int) -> bool:
    """Locks a note; False if another run took it back, as no call of its run could land any more."""
    return connection.execute(text(_LOCK_NOTE), {"note": note_id}).scalar() is not None


_LOCK_NOTE = "SELECT 1 FROM prism_publication_notes WHERE prism_publication_note_id = :note FOR UPDATE"


def begin_call(connection: Connection, note_id: int, longest_seconds: float) -> None:
    """Notes, before a call that changes something, how long it may take to land. Locks the note."""
    connection.execute(text(_BEGIN_CALL), {"note": note_id, "longest": longest_seconds})


_BEGIN_CALL = """
UPDATE prism_publication_notes SET expire_time = clock_timestamp() + make_interval(secs => :longest)
WHERE prism_publication_note_id = :note
"""


def end_calls(connection: Connection, note_id: int) -> None:
    """Notes that all calls of a run so far were answered: none of them is on its way. Locks the note."""
    connection.execute(text(_END_CALLS), {"note": note_id})


_END_CALLS = """
UPDATE prism_publication_notes SET expire_time = clock_timestamp()
WHERE prism_publication_note_id = :note
"""


def remove_note(connection: Connection, note_id: int) -> None:
    """Takes back the note of a run that did all it began, unless one of its calls may still land. Locks the note."""
    connection.execute(text(_REMOVE_NOTE), {"note": note_id})


_REMOVE_NOTE = """
DELETE FROM prism_publication_notes
WHERE prism_publication_note_id = :note AND expire_time <= clock_timestamp()
"""


def remove_expired(connection: Connection, table_id: int, publisher: str, time: datetime) -> None:
    """Takes back the notes whose calls could not land any more at a time at which a comparison had not begun yet.

    Locks those notes.
    """
    connection.execute(text(_REMOVE_EXPIRED), {"table": table_id, "publisher": publisher, "time": time})


_REMOVE_EXPIRED = """
DELETE FROM prism_publication_notes
WHERE prism_table_id = :table AND publisher = :publisher AND expire_time < :time
"""
