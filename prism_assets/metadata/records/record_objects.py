"""Statements on prism_record_objects: objects written by folds and merges of records, and their replacement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, RowMapping, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files.garbage import WrittenByFold
from prism_assets.domain.files.keys import RecordKey, TableKeys
from prism_assets.domain.records.folding import RecordObject, RecordPart
from prism_assets.metadata.tables.column_metrics import from_jsonb, to_jsonb

_COLUMNS = """prism_record_object_id AS object_id, date, part, bucket_number, cohort, fold_id, content_length, row_count,
    min_time, max_time, fingerprint, file_format, metrics, definition_version, earliest_settle, latest_settle,
    oldest_change, is_settled, merges, is_merged, fault, joined_rows, erasure_id"""


UNMERGED = "replaced_by IS NULL AND is_settled AND NOT is_merged AND part = 'visible'"
"""Condition for objects not yet looked at by a merge of records. A partial index has them."""


def load_open(connection: Connection, keys: TableKeys, table_id: int) -> list[RecordObject]:
    """Returns the input of a table's next fold: unsettled records, and pending changes. Reads without locks."""
    return [_record_object(row._mapping, keys) for row in connection.execute(text(_OPEN), {"table": table_id})]


_OPEN = f"""
SELECT {_COLUMNS} FROM prism_record_objects
WHERE prism_table_id = :table AND replaced_by IS NULL AND NOT is_settled
ORDER BY bucket_number, prism_record_object_id
"""


def count_open(connection: Connection, partition_id: int) -> int:
    """Counts the objects of a day read by the next fold, because their records may still change.

    Reads without locks.
    """
    return int(connection.execute(text(_COUNT_OPEN), {"partition": partition_id}).scalar_one())


_COUNT_OPEN = """
SELECT count(*) FROM prism_record_objects
WHERE prism_partition_id = :partition AND replaced_by IS NULL AND NOT is_settled
"""


def load_shown(connection: Connection, keys: TableKeys, partition_id: int) -> list[RecordObject]:
    """Returns the objects whose records readers of a day see. Reads without locks."""
    rows = connection.execute(text(_SHOWN), {"partition": partition_id})
    return [_record_object(row._mapping, keys) for row in rows]


_SHOWN = f"""
SELECT {_COLUMNS} FROM prism_record_objects
WHERE prism_partition_id = :partition AND replaced_by IS NULL AND part = 'visible'
ORDER BY cohort, bucket_number, prism_record_object_id
"""


def load_current(connection: Connection, keys: TableKeys, table_id: int) -> list[RecordObject]:
    """Returns all objects of a table that no rewrite has replaced, by date. Reads without locks."""
    return [_record_object(row._mapping, keys) for row in connection.execute(text(_CURRENT), {"table": table_id})]


_CURRENT = f"""
SELECT {_COLUMNS} FROM prism_record_objects
WHERE prism_table_id = :table AND replaced_by IS NULL
ORDER BY date, prism_record_object_id
"""


def _record_object(row: RowMapping, keys: TableKeys) -> RecordObject:
    fields = {**row, "part": RecordPart(row["part"]), "metrics": from_jsonb(row["metrics"])}
    key = keys.record_object(row["date"], fields["part"], row["fold_id"], row["bucket_number"], row["cohort"])
    return RecordObject(bucket=keys.bucket, key=key, **fields)


def insert_written(
    connection: Connection, table_id: int, written: Sequence[RecordObject], partition_ids: Mapping[date, int]
) -> None:
    """Records the objects written by a fold. Pending changes belong to no partition.

    The caller holds the partitions' rows.
    """
    rows = [
        {
            **{name: getattr(item, name) for name in _STORED},
            "table": table_id,
            "partition": None if item.part is RecordPart.PENDING else partition_ids[item.date],
            "part": item.part.value,
            "metrics": to_jsonb(item.metrics),
        }
        for item in written
    ]
    if rows:
        connection.execute(text(_INSERT), rows)


_STORED = (
    "date", "bucket_number", "cohort", "fold_id", "content_length", "row_count", "min_time", "max_time", "fingerprint",
    "file_format", "definition_version", "earliest_settle", "latest_settle", "oldest_change", "is_settled", "merges",
    "is_merged", "joined_rows", "erasure_id",
)  # fmt: skip
_INSERT = """
INSERT INTO prism_record_objects (prism_table_id, prism_partition_id, date, part, bucket_number, cohort, fold_id,
    content_length, row_count, min_time, max_time, fingerprint, file_format, metrics, definition_version,
    earliest_settle, latest_settle, oldest_change, is_settled, merges, is_merged, joined_rows, erasure_id)
VALUES (:table, :partition, :date, :part, :bucket_number, :cohort, :fold_id, :content_length, :row_count, :min_time,
    :max_time, :fingerprint, :file_format, CAST(:metrics AS jsonb), :definition_version, :earliest_settle,
    :latest_settle, :oldest_change, :is_settled, :merges, :is_merged, :joined_rows,
    :erasure_id)
"""


def replace(connection: Connection, object_ids: Collection[int], fold_id: int) -> None:
    """Records the fold or merge that replaced these objects. Raises LeaseLost if another already has.

    Locks their rows.
    """
    done = connection.execute(text(_REPLACE), {"ids": sorted(object_ids), "fold": fold_id}).rowcount
    if done != len(set(object_ids)):
        raise LeaseLost("another fold has replaced objects of this one meanwhile; nothing was changed")


_REPLACE = """
UPDATE prism_record_objects SET replaced_by = :fold
WHERE prism_record_object_id IN (
    SELECT prism_record_object_id FROM prism_record_objects
    WHERE prism_record_object_id = ANY(:ids) AND replaced_by IS NULL
    ORDER BY prism_record_object_id FOR UPDATE)
"""


def settle(connection: Connection, object_ids: Collection[int]) -> None:
    """Records that all records of some objects have settled: no fold reads them again. Locks their rows."""
    if object_ids:
        connection.execute(text(_SETTLE), {"ids": sorted(object_ids)})


_SETTLE = """
UPDATE prism_record_objects SET is_settled = true
WHERE prism_record_object_id IN (
    SELECT prism_record_object_id FROM prism_record_objects
    WHERE prism_record_object_id = ANY(:ids) AND replaced_by IS NULL AND part <> 'pending'
    ORDER BY prism_record_object_id FOR UPDATE)
"""


def load_unsearched(connection: Connection, keys: TableKeys, table_id: int, erasure_id: int) -> list[RecordObject]:
    """Returns the objects of a table that may hold rows of an erasure. Reads without locks.

    Leaves out settled objects of expired days: no reader is sent there, and garbage collection deletes them.
    """
    rows = connection.execute(text(_UNSEARCHED), {"table": table_id, "erasure": erasure_id})
    return [_record_object(row._mapping, keys) for row in rows]


_UNSEARCHED = f"""
SELECT {_COLUMNS} FROM prism_record_objects r
WHERE prism_table_id = :table AND replaced_by IS NULL AND erasure_id < :erasure
    AND NOT (is_settled AND EXISTS (SELECT 1 FROM prism_partitions p
        WHERE p.prism_partition_id = r.prism_partition_id AND p.expire_time IS NOT NULL))
ORDER BY date DESC, prism_record_object_id
"""


def mark_searched(connection: Connection, object_ids: Collection[int], erasure_id: int) -> None:
    """Records that searched objects hold no rows of an erasure. Locks their rows."""
    if object_ids and erasure_id:
        connection.execute(text(_MARK_SEARCHED), {"ids": sorted(object_ids), "erasure": erasure_id})


_MARK_SEARCHED = """
UPDATE prism_record_objects SET erasure_id = :erasure
WHERE prism_record_object_id IN (
    SELECT prism_record_object_id FROM prism_record_objects
    WHERE prism_record_object_id = ANY(:ids) AND replaced_by IS NULL AND erasure_id < :erasure
    ORDER BY prism_record_object_id FOR UPDATE)
"""


def mark_unsearched(connection: Connection, object_ids: Collection[int], erasure_id: int) -> None:
    """Records that objects may hold rows of an erasure after all. Locks their rows."""
    connection.execute(text(_MARK_UNSEARCHED), {"ids": sorted(object_ids), "erasure": erasure_id})


_MARK_UNSEARCHED = """
UPDATE prism_record_objects SET erasure_id = :erasure - 1
WHERE prism_record_object_id IN (
    SELECT prism_record_object_id FROM prism_record_objects
    WHERE prism_record_object_id = ANY(:ids) AND erasure_id >= :erasure ORDER BY prism_record_object_id FOR UPDATE)
"""


@dataclass(frozen=True, kw_only=True)
class UnmergedDay:
    """A day with settled records that a merge has yet to look at."""

    partition_id: int
    date: date
    objects: int
    """Number of objects with such records."""
    content_length: int
    """Bytes of these objects."""
    is_open: bool
    """The day also has objects that folds still read."""


def load_unmerged_days(connection: Connection, table_id: int, day: date | None = None) -> list[UnmergedDay]:
    """Returns unexpired days of a table with records to merge, or one of them, the oldest first.

    Leaves out unreadable objects. Reads without locks, by a partial index.
    """
    rows = connection.execute(text(_UNMERGED_DAYS), {"table": table_id, "day": day})
    return [UnmergedDay(**{**row._mapping, "content_length": int(row.content_length)}) for row in rows]


_UNMERGED_DAYS = f"""
SELECT u.prism_partition_id AS partition_id, p.partition_date AS date, u.objects, u.content_length,
    EXISTS (SELECT 1 FROM prism_record_objects WHERE prism_partition_id = u.prism_partition_id
        AND replaced_by IS NULL AND NOT is_settled) AS is_open
FROM (
    SELECT prism_partition_id, count(*) AS objects, sum(content_length) AS content_length FROM prism_record_objects
    WHERE prism_table_id = :table AND {UNMERGED} AND fault IS NULL
    GROUP BY prism_partition_id
) u JOIN prism_partitions p USING (prism_partition_id)
WHERE p.expire_time IS NULL AND (CAST(:day AS date) IS NULL OR p.partition_date = :day)
ORDER BY p.partition_date
"""


def lock_objects(connection: Connection, object_ids: Collection[int]) -> None:
    """Locks the rows of objects in the order of ids, like every statement that changes several of them."""
    connection.execute(text(_LOCK_OBJECTS), {"ids": list(object_ids)})


_LOCK_OBJECTS = """
SELECT 1 FROM prism_record_objects WHERE prism_record_object_id = ANY(:ids) ORDER BY prism_record_object_id FOR UPDATE
"""


def mark_merged(connection: Connection, object_ids: Collection[int]) -> None:
    """Records that no merge looks at these settled objects again. Locks their rows."""
    if object_ids:
        connection.execute(text(_KEEP), {"ids": sorted(object_ids)})


_KEEP = """
UPDATE prism_record_objects SET is_merged = true
WHERE prism_record_object_id IN (
    SELECT prism_record_object_id FROM prism_record_objects
    WHERE prism_record_object_id = ANY(:ids) AND replaced_by IS NULL AND is_settled
    ORDER BY prism_record_object_id FOR UPDATE)
"""


def observed_shrinkage(connection: Connection, table_id: int) -> float | None:
    """Returns merged bytes per byte of input in a table's last merges of records; None without merges."""
    shrinkage = connection.execute(text(_SHRINKAGE), {"table": table_id}).scalar_one()
    return None if shrinkage is None else min(1.0, float(shrinkage))


_SHRINKAGE = """
SELECT CAST(sum(m.bytes_written) AS double precision) / nullif(sum(b.bytes), 0) FROM (
    SELECT prism_rewrite_id, bytes_written FROM prism_rewrites
    WHERE prism_table_id = :table AND kind = 'merge_records' AND state = 'done' AND bytes_written > 0
    ORDER BY prism_rewrite_id DESC LIMIT 3
) m CROSS JOIN LATERAL (
    SELECT sum(content_length) AS bytes FROM prism_record_objects WHERE replaced_by = m.prism_rewrite_id
) b
"""


@dataclass(frozen=True, kw_only=True)
class RecordTimes:
    """The next events of a table's records, None for no such event."""

    first_settles: datetime | None
    """The first record settles."""
    first_settled_whole: datetime | None
    """All records of the first object have settled."""
    oldest_pending: datetime | None
    """The oldest pending change was committed."""


def load_times(connection: Connection, table_id: int) -> RecordTimes:
    """Returns the next events among a table's unsettled records. Reads without locks, by a partial index."""
    return RecordTimes(**connection.execute(text(_TIMES), {"table": table_id}).one()._mapping)


_TIMES = """
SELECT min(earliest_settle) AS first_settles, min(latest_settle) AS first_settled_whole,
    min(oldest_change) AS oldest_pending
FROM prism_record_objects
WHERE prism_table_id = :table AND replaced_by IS NULL AND NOT is_settled
"""


def trace(
    connection: Connection, table_id: int, named: Collection[RecordKey], at: datetime
) -> dict[RecordKey, WrittenByFold]:
    """Returns the records of objects written by folds, each with the fold that had replaced it at an instant.

    Reads without locks. Call it after the listing that found the objects: a finished fold records no further object,
    and a replaced object stays replaced.
    """
    ordered = sorted(named, key=lambda item: (item.fold_id, item.part.value, item.date, item.bucket, item.cohort))
    rows = connection.execute(
        text(_TRACE),
        {
            "table": table_id,
            "folds": [item.fold_id for item in ordered],
            "parts": [item.part.value for item in ordered],
            "dates": [item.date for item in ordered],
            "buckets": [item.bucket for item in ordered],
            "cohorts": [item.cohort for item in ordered],
            "at": at,
        },
    )
    return {
        item: WrittenByFold(
            is_recorded=row.is_recorded,
            replaced_by=row.replaced_by,
            is_settled=row.is_settled,
            is_over=row.is_over,
            is_foreign=row.is_foreign,
        )
        for item, row in zip(ordered, rows, strict=True)
    }


_TRACE = """
SELECT r.prism_record_object_id IS NOT NULL AS is_recorded, coalesce(r.is_settled, false) AS is_settled,
    CASE WHEN g.finish_time <= :at THEN r.replaced_by END AS replaced_by,
    coalesce(f.state <> 'running', false) AS is_over, f.prism_rewrite_id IS NULL AS is_foreign
FROM unnest(CAST(:folds AS bigint[]), CAST(:parts AS text[]), CAST(:dates AS date[]), CAST(:buckets AS integer[]),
    CAST(:cohorts AS integer[])) WITH ORDINALITY AS w (fold_id, part, date, bucket_number, cohort, place)
LEFT JOIN prism_rewrites f ON f.prism_rewrite_id = w.fold_id AND f.prism_table_id = :table
LEFT JOIN prism_record_objects r ON r.fold_id = w.fold_id AND r.part = w.part AND r.date = w.date
    AND r.bucket_number = w.bucket_number AND r.cohort = w.cohort AND r.prism_table_id = :table
LEFT JOIN prism_rewrites g ON g.prism_rewrite_id = r.replaced_by
ORDER BY w.place
"""
