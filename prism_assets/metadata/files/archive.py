"""Statements on rows that leave PostgreSQL for the archive: of objects whose days all are old, and of merges.

An old day expired long ago, or is kept and was merged long ago. A staging object leaves together with all rows that
refer to it, so that the remaining ledger balances. For a kept day its merged ranges keep the sums of the small objects
that left, and its key stays known. Staging objects without rows stay, and so do the rows of days.
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
    """A day that expired, or was merged, long ago, and still has rows of small objects in PostgreSQL."""

    partition_id: int
    date: date
    is_expired: bool


@dataclass(frozen=True, kw_only=True)
class OldObject:
    """A staging object all of whose days are old."""

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


def load_old_days(
    connection: Connection, table_id: int, *, expired_before: datetime, merged_before: datetime
) -> list[OldDay]:
    """Returns the old days of a table that still have small objects, by date: expired or merged before an instant.

    Reads without locks.
    """
    values = {"table": table_id, "expired_before": expired_before, "merged_before": merged_before}
    return [
        OldDay(partition_id=row.prism_partition_id, date=row.partition_date, is_expired=row.is_expired)
        for row in connection.execute(text(_OLD_DAYS), values)
    ]


# A kept day is old if every catalog shows its present state and no merge changed it lately. Late rows make it young
# again. Folds read the small objects of a log of changes.
_OLD_DAYS = """
SELECT prism_partition_id, partition_date, expire_time IS NOT NULL AS is_expired FROM prism_partitions p
WHERE prism_table_id = :table
    AND (expire_time < :expired_before OR expire_time IS NULL AND switched
        AND NOT EXISTS (SELECT 1 FROM prism_merge_ranges r
            WHERE r.prism_partition_id = p.prism_partition_id AND r.update_time >= :merged_before)
        AND NOT EXISTS (SELECT 1 FROM prism_publications q
            WHERE q.prism_partition_id = p.prism_partition_id AND q.dirty)
        AND NOT EXISTS (SELECT 1 FROM prism_tables t
            WHERE t.prism_table_id = p.prism_table_id AND t.changes_of IS NOT NULL))
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
_HAS_LINES = """
EXISTS (SELECT 1 FROM prism_quarantine q
    WHERE q.prism_staging_object_id = {o}.prism_staging_object_id AND q.object_key IS NOT NULL)
"""
"""Whether S3 still has quarantined lines of the staging object `{o}`."""
# Small objects of a kept day that stay: those above the ranges; all of them while the day is rewritten or an erasure of
# the table is not proved; and those of a staging object that another table of its prefix has not finished, or of which
# it has quarantined lines, because a claim and a replay read the rows of all these tables.
_IS_NEEDED = f"""
(s.prism_small_object_id > p.desired_manifest_version
    OR EXISTS (SELECT 1 FROM prism_rewrites w
        WHERE w.prism_partition_id = p.prism_partition_id AND w.state = 'running')
    OR EXISTS (SELECT 1 FROM prism_erasures e
        WHERE e.prism_table_id = o.prism_table_id AND e.state <> 'proved')
    OR EXISTS (SELECT 1 FROM prism_staging_objects k
        WHERE k.bucket_name = o.bucket_name AND k.object_key = o.object_key
            AND k.prism_staging_object_id <> o.prism_staging_object_id
            AND (k.state <> 'done' OR {_HAS_LINES.format(o="k")})))
"""
# These objects stay: those with lines in quarantine, those whose later version nobody has dismissed, and those that an
# erasure, a rebuild, a fold or a removal still has to read.
_OLD = f"""
SELECT prism_staging_object_id, bucket_name, object_key FROM prism_staging_objects o
WHERE prism_staging_object_id = ANY(:ids) AND state = 'done' AND (overwritten_time IS NULL OR dismissed)
    AND NOT EXISTS (SELECT 1 FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id)
        WHERE s.prism_staging_object_id = o.prism_staging_object_id
            AND (s.prism_partition_id <> ALL(:days) OR p.expire_time IS NULL AND {_IS_NEEDED} OR EXISTS (
                SELECT 1 FROM prism_set_aside_changes c WHERE c.prism_small_object_id = s.prism_small_object_id)))
    AND NOT {_HAS_LINES.format(o="o")}
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

    Locks partitions first, so that no range changes. Then locks staging objects in the order of their keys, like the
    registration of objects, so that no row is added. Writes the sums and keys of kept days in the same transaction, so
    that a listing always finds either the rows or the keys.
    """
    ids = list(staging_object_ids)
    for statement in (_LOCK_DAYS, _LOCK):
        connection.execute(text(statement), {"ids": ids})
    old = [row.prism_staging_object_id for row in connection.execute(text(_OLD), {"ids": ids, "days": list(days)})]
    range_upkeep.separate(connection, old)
    for statement in (_ADD_SUMS, _KEEP_KEYS):
        connection.execute(text(statement), {"ids": old})
    for name in _OF_OBJECTS:
        connection.execute(text(f"DELETE FROM {name} WHERE prism_staging_object_id = ANY(:ids)"), {"ids": old})
    return len(old)


_LOCK_DAYS = """
SELECT 1 FROM prism_partitions WHERE prism_partition_id IN (
    SELECT prism_partition_id FROM prism_small_objects WHERE prism_staging_object_id = ANY(:ids))
ORDER BY prism_partition_id FOR UPDATE
"""
_LOCK = """
SELECT 1 FROM prism_staging_objects WHERE prism_staging_object_id = ANY(:ids) ORDER BY object_key FOR UPDATE
"""
# Erased rows count like others: a range and its small objects count them on both sides.
_ADD_SUMS = """
UPDATE prism_merge_ranges r SET archived_objects = r.archived_objects + a.objects,
    archived_rows = r.archived_rows + a.rows, archived_bytes = r.archived_bytes + a.bytes,
    archived_fingerprint = r.archived_fingerprint + a.fingerprint
FROM (
    SELECT g.prism_merge_range_id AS id, count(*) AS objects, sum(s.row_count + s.rows_erased) AS rows,
        sum(s.content_length) AS bytes, sum(CAST(s.fingerprint AS numeric) + s.erased_fingerprint) AS fingerprint
    FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id)
    JOIN prism_merge_ranges g ON g.prism_partition_id = s.prism_partition_id
        AND g.lower_bound < s.prism_small_object_id AND g.upper_bound >= s.prism_small_object_id
    WHERE s.prism_staging_object_id = ANY(:ids) AND p.expire_time IS NULL
    GROUP BY g.prism_merge_range_id
) a
WHERE r.prism_merge_range_id = a.id
"""
# Without rows of kept days a key may come again: retention filters its rows.
_KEEP_KEYS = """
INSERT INTO prism_archived_keys (key_digest, prism_table_id, prism_stream_id, last_date)
SELECT prism_key_digest(o.bucket_name, o.object_key), o.prism_table_id, o.prism_stream_id, max(p.partition_date)
FROM prism_staging_objects o JOIN prism_small_objects s USING (prism_staging_object_id)
    JOIN prism_partitions p USING (prism_partition_id)
WHERE o.prism_staging_object_id = ANY(:ids) AND p.expire_time IS NULL
GROUP BY o.prism_staging_object_id
ORDER BY 1, 2
ON CONFLICT (key_digest, prism_table_id) DO UPDATE
SET last_date = greatest(prism_archived_keys.last_date, EXCLUDED.last_date)
"""
_OF_OBJECTS = (
    "prism_abandoned_uploads",
    "prism_erasure_sources",
    "prism_rebuilt_objects",
    "prism_quarantine",
    "prism_small_objects",
    "prism_staging_objects",
)


def forget_keys(connection: Connection, table_id: int, expired_before: datetime) -> int:
    """Deletes digests of keys all of whose days expired before an instant, up to 5,000. Returns how many.

    The keys may come again, because retention filters their rows. Locks the deleted rows.
    """
    values = {"table": table_id, "before": expired_before, "most": _AT_ONCE}
    return connection.execute(text(_FORGET_KEYS), values).rowcount


_FORGET_KEYS = """
DELETE FROM prism_archived_keys WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM prism_archived_keys WHERE prism_table_id = :table AND last_date < coalesce((
        SELECT min(partition_date) FROM prism_partitions
        WHERE prism_table_id = :table AND (expire_time IS NULL OR expire_time >= :before)), 'infinity')
    ORDER BY last_date LIMIT :most FOR UPDATE))
"""


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
