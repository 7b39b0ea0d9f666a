"""Statements on the retention of tables: the first day that takes rows, and the expiry of days."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.metadata.days.partitions import partition_of


@dataclass(frozen=True, kw_only=True)
class RetentionMark:
    """Objects first claimed by a batch after `batch_id` have no rows of days before `first_day`."""

    first_day: date
    batch_id: int


def load_mark(connection: Connection, table_id: int) -> RetentionMark | None:
    """Returns the mark of a table, or None if no day ever became too old. Reads without locks."""
    return load_marks(connection, [table_id]).get(table_id)


def load_marks(connection: Connection, table_ids: Collection[int]) -> dict[int, RetentionMark]:
    """Returns the marks of tables, without tables where no day ever became too old. Reads without locks."""
    rows = connection.execute(text(_MARKS), {"tables": list(table_ids)})
    return {row.table_id: RetentionMark(first_day=row.first_day, batch_id=row.batch_id) for row in rows}


_MARKS = """
SELECT prism_table_id AS table_id, retained_from AS first_day, retained_batch_id AS batch_id FROM prism_tables
WHERE prism_table_id = ANY(:tables) AND retained_from IS NOT NULL
"""


def advance_mark(connection: Connection, table_id: int, first_day: date) -> bool:
    """Makes rows of days before `first_day` too old for every later batch. Returns False if they already are.

    The caller holds the epoch lock exclusively, so no batch starts. Locks the table's row.
    """
    return bool(connection.execute(text(_ADVANCE_MARK), {"table": table_id, "day": first_day}).rowcount)


_ADVANCE_MARK = """
UPDATE prism_tables SET retained_from = :day,
    retained_batch_id = (SELECT coalesce(max(prism_stream_batch_id), 0) FROM prism_stream_batches)
WHERE prism_table_id = :table AND (retained_from IS NULL OR retained_from < :day)
"""


def load_older(connection: Connection, oldest_kept: Mapping[int, date]) -> list[Partition]:
    """Returns unexpired switched partitions older than their table's retention, by table and date.

    Reads without locks, by a partial index.
    """
    values = {"tables": list(oldest_kept), "days": list(oldest_kept.values())}
    return [partition_of(row) for row in connection.execute(text(_OLDER), values)]


_OLDER = """
SELECT s.* FROM unnest(CAST(:tables AS bigint[]), CAST(:days AS date[])) AS w (table_id, day)
CROSS JOIN LATERAL (
    SELECT prism_partition_id FROM prism_partitions
    WHERE prism_table_id = w.table_id AND partition_date < w.day AND expire_time IS NULL AND switched
    OFFSET 0
) p JOIN prism_partition_states s ON s.partition_id = p.prism_partition_id
ORDER BY s.table_id, s.date
"""


def expire(connection: Connection, partition_id: int) -> None:
    """Expires the day of a partition and fails its waiting and running merges. The caller holds the partition's row.

    After the transaction DuckLake clients no longer see the day. Locks the rows of the merges.
    """
    connection.execute(text(_EXPIRE), {"id": partition_id})
    connection.execute(text("DELETE FROM prism_merge_jobs WHERE prism_partition_id = :id"), {"id": partition_id})


_EXPIRE = """
UPDATE prism_partitions SET expire_time = clock_timestamp() WHERE prism_partition_id = :id AND expire_time IS NULL
"""


def load_expired(connection: Connection, table_id: int) -> frozenset[date]:
    """Returns the expired days of a table. Reads without locks."""
    return frozenset(connection.execute(text(_EXPIRED), {"table": table_id}).scalars())


_EXPIRED = "SELECT partition_date FROM prism_partitions WHERE prism_table_id = :table AND expire_time IS NOT NULL"


def find_gone(connection: Connection, partition_ids: Collection[int], at: datetime) -> set[int]:
    """Returns the expired partitions shown by no catalog at an instant. Ignores Iceberg.

    Callers read the snapshots of Iceberg themselves.
    """
    rows = connection.execute(text(_GONE), {"ids": list(partition_ids), "at": at})
    return set(rows.scalars())


_GONE = """
SELECT p.prism_partition_id FROM prism_partitions p
WHERE p.prism_partition_id = ANY(:ids) AND p.expire_time <= :at AND NOT EXISTS (
    SELECT 1 FROM prism_publications q WHERE q.prism_partition_id = p.prism_partition_id
        AND q.publisher <> 'iceberg' AND (q.version >= 0 OR q.withdraw_time > :at))
"""


@dataclass(frozen=True, kw_only=True)
class OldRows:
    """Numbers of days and rows of a table past a retention."""

    days: int
    rows: int


def count_older(connection: Connection, table_id: int, oldest_kept: date) -> OldRows:
    """Counts the days and rows that would expire, for a plan. Reads without locks."""
    row = connection.execute(text(_COUNT_OLDER), {"table": table_id, "day": oldest_kept}).one()
    return OldRows(days=row.days, rows=int(row.rows))


# For merged days the rows of ranges count, because the small objects they cover keep rows erased since.
_COUNT_OLDER = """
SELECT count(*) AS days, coalesce(sum(s.rows + r.rows), 0) AS rows FROM prism_partitions p CROSS JOIN LATERAL (
    SELECT coalesce(sum(row_count), 0) AS rows FROM prism_small_objects
    WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > p.desired_manifest_version
) s CROSS JOIN LATERAL (
    SELECT coalesce(sum(row_count), 0) AS rows FROM prism_merge_ranges
    WHERE prism_partition_id = p.prism_partition_id AND lower_bound IS NOT NULL
) r
WHERE p.prism_table_id = :table AND p.partition_date < :day AND p.expire_time IS NULL
"""
