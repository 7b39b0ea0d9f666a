"""Statements on rows that leave PostgreSQL for the archive: of objects whose days all expired long ago, and of merges.

A staging object leaves together with all rows that refer to it, so that the remaining ledger balances. Staging objects
without rows stay, and so do the rows of days.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.metadata.kafka import range_upkeep

_AT_ONCE = 5_000


@dataclass(frozen=True, kw_only=True)
class OldDay:
    """A day that expired long ago and still has rows of small objects in PostgreSQL."""

    partition_id: int
    date: date


@dataclass(frozen=True, kw_only=True)
class OldObject:
    """A staging object all of whose days expired long ago."""

    staging_object_id: int
    bucket: str
    key: str


@dataclass(frozen=True, kw_only=True)
class OldObjectsPage:
    """The old staging objects among one page of small objects."""

    objects: tuple[OldObject, ...]
    last: int
    """The id at the end of the page."""


@dataclass(frozen=True, kw_only=True)
class RowsToArchive:
    """Rows of one table of PostgreSQL, each as JSON."""

    kind: str
    columns: tuple[tuple[str, str], ...]
    """Names of columns with their types."""
    rows: tuple[str, ...]
    ids: tuple[int, ...]
    """The staging objects or log entries whose rows these are."""


def load_old_days(connection: Connection, table_id: int, before: datetime) -> list[OldDay]:
    """Returns the days of a table that expired before an instant and still have small objects, by date.

    Reads without locks.
    """
    rows = connection.execute(text(_OLD_DAYS), {"table": table_id, "before": before})
    return [OldDay(partition_id=row.prism_partition_id, date=row.partition_date) for row in rows]


_OLD_DAYS = """
SELECT prism_partition_id, partition_date FROM prism_partitions p
WHERE prism_table_id = :table AND expire_time < :before
    AND EXISTS (SELECT 1 FROM prism_small_objects s WHERE s.prism_partition_id = p.prism_partition_id)
ORDER BY partition_date
"""


def find_old_objects(
    connection: Connection, partition_id: int, days: Collection[int], above: int
) -> OldObjectsPage | None:
    """Returns staging objects of a day that nobody needs any more.

    All days of such an object are among `days`, given by id.

    Reads one page of small objects above an id; None if there are none. Reads without locks.
    """
    values = {"partition": partition_id, "above": above, "most": _AT_ONCE}
    page = connection.execute(text(_PAGE), values).all()
    if not page:
        return None
    ids = [row.prism_staging_object_id for row in page]
    rows = connection.execute(text(_OLD), {"ids": ids, "days": list(days)})
    return OldObjectsPage(
        objects=tuple(
            OldObject(staging_object_id=row.prism_staging_object_id, bucket=row.bucket_name, key=row.object_key)
            for row in rows
        ),
        last=page[-1].prism_small_object_id,
    )


_PAGE = """
SELECT prism_small_object_id, prism_staging_object_id FROM prism_small_objects
WHERE prism_partition_id = :partition AND prism_small_object_id > :above
ORDER BY prism_small_object_id LIMIT :most
"""
# Objects with lines in quarantine stay, and objects that an erasure, a rebuild, a fold or a removal still has to read.
_OLD = """
SELECT prism_staging_object_id, bucket_name, object_key FROM prism_staging_objects o
WHERE prism_staging_object_id = ANY(:ids) AND state = 'done'
    AND NOT EXISTS (SELECT 1 FROM prism_small_objects s WHERE s.prism_staging_object_id = o.prism_staging_object_id
        AND (s.prism_partition_id <> ALL(:days) OR EXISTS (
            SELECT 1 FROM prism_set_aside_changes c WHERE c.prism_small_object_id = s.prism_small_object_id)))
    AND NOT EXISTS (SELECT 1 FROM prism_quarantine q
        WHERE q.prism_staging_object_id = o.prism_staging_object_id AND q.object_key IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM prism_abandoned_uploads a
        WHERE a.prism_staging_object_id = o.prism_staging_object_id AND NOT a.removed)
    AND NOT EXISTS (SELECT 1 FROM prism_erasure_sources e JOIN prism_erasures USING (prism_erasure_id)
        WHERE e.prism_staging_object_id = o.prism_staging_object_id AND state <> 'proved')
    AND NOT EXISTS (SELECT 1 FROM prism_rebuilt_objects r JOIN prism_rewrites b USING (prism_rewrite_id)
        WHERE r.prism_staging_object_id = o.prism_staging_object_id AND b.state = 'running')
ORDER BY prism_staging_object_id
"""
_KINDS = ("staging_objects", "small_objects", "quarantine")


def load_rows(connection: Connection, staging_object_ids: Sequence[int]) -> list[RowsToArchive]:
    """Returns all rows to archive of staging objects, by kind. Reads without locks."""
    found = [_rows(connection, kind, "prism_staging_object_id", staging_object_ids) for kind in _KINDS]
    return [rows for rows in found if rows.rows]


def _rows(connection: Connection, kind: str, by: str, ids: Sequence[int]) -> RowsToArchive:
    """Reads rows without metrics of columns. Metrics contain values, and an erasure would have to find these."""
    columns = connection.execute(text(_COLUMNS), {"name": f"prism_{kind}"})
    found = connection.execute(text(_ROWS.format(kind=kind, by=by)), {"ids": list(ids)}).scalars().all()
    return RowsToArchive(
        kind=kind,
        columns=tuple((row.column_name, row.udt_name) for row in columns),
        rows=tuple(found),
        ids=tuple(ids),
    )


_COLUMNS = """
SELECT column_name, udt_name FROM information_schema.columns
WHERE table_schema = ANY(current_schemas(false)) AND table_name = :name AND column_name <> 'metrics'
ORDER BY ordinal_position
"""
_ROWS = "SELECT CAST(to_jsonb(r) AS text) FROM prism_{kind} r WHERE {by} = ANY(:ids) ORDER BY 1"


def forget_objects(connection: Connection, staging_object_ids: Collection[int], days: Collection[int]) -> int:
    """Deletes staging objects that are still old, with all rows that refer to them. Returns how many.

    Locks their rows in the order of keys, like the registration of objects, so that nothing is added meanwhile.
    """
    ids = list(staging_object_ids)
    connection.execute(text(_LOCK), {"ids": ids})
    old = [row.prism_staging_object_id for row in connection.execute(text(_OLD), {"ids": ids, "days": list(days)})]
    range_upkeep.separate(connection, old)
    for name in _OF_OBJECTS:
        connection.execute(text(f"DELETE FROM {name} WHERE prism_staging_object_id = ANY(:ids)"), {"ids": old})
    return len(old)


_LOCK = """
SELECT 1 FROM prism_staging_objects WHERE prism_staging_object_id = ANY(:ids) ORDER BY object_key FOR UPDATE
"""
_OF_OBJECTS = (
    "prism_abandoned_uploads",
    "prism_erasure_sources",
    "prism_rebuilt_objects",
    "prism_quarantine",
    "prism_small_objects",
    "prism_staging_objects",
)


def find_old_merges(connection: Connection, table_id: int, before: datetime) -> list[int]:
    """Returns the ids of the first log entries of merges of a table that ended before an instant.

    Reads without locks, by index.
    """
    values = {"table": table_id, "before": before, "most": _AT_ONCE}
    return list(connection.execute(text(_OLD_MERGES), values).scalars())


_OLD_MERGES = """
SELECT l.prism_merge_job_log_id FROM prism_partitions p CROSS JOIN LATERAL (
    SELECT prism_merge_job_log_id FROM prism_merge_job_log
    WHERE prism_partition_id = p.prism_partition_id AND finish_time < :before
    OFFSET 0
) l
WHERE p.prism_table_id = :table
ORDER BY 1 LIMIT :most
"""


def load_merges(connection: Connection, ids: Sequence[int]) -> RowsToArchive:
    """Returns log entries of merges. Reads without locks."""
    return _rows(connection, "merge_job_log", "prism_merge_job_log_id", ids)


def forget_merges(connection: Connection, ids: Collection[int]) -> int:
    """Deletes log entries of merges. Returns how many. Locks the rows."""
    return connection.execute(text(_FORGET_MERGES), {"ids": list(ids)}).rowcount


_FORGET_MERGES = "DELETE FROM prism_merge_job_log WHERE prism_merge_job_log_id = ANY(:ids)"
