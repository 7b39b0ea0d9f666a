"""Counts of what waits, by table and day: what the sensors ask at every tick. Reads without locks, by partial indexes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.metadata.abandoned_uploads import IS_DUE


@dataclass(frozen=True, kw_only=True)
class PendingCount:
    """Staging objects of a table that a batch could claim now, and those that an attempt has left to be looked after.

    Those are the ones that a dead batch still holds, and those whose uploads are to be removed.
    """

    table_id: int
    pending: int
    abandoned: int


def count_pending(connection: Connection, lease_seconds: float, at_most: int = 1_000) -> list[PendingCount]:
    """Tables with work for Stream; counting stops at `at_most` objects a stream, so that a backlog costs no more."""
    rows = connection.execute(text(_PENDING), {"lease": lease_seconds, "most": at_most})
    return [
        PendingCount(table_id=row.prism_table_id, pending=int(row.pending), abandoned=int(row.abandoned))
        for row in rows
    ]


_PENDING = f"""
SELECT prism_table_id, sum(pending) AS pending, sum(abandoned) AS abandoned FROM (
    SELECT s.prism_table_id, w.pending, 0 AS abandoned FROM prism_streams s
    CROSS JOIN LATERAL (SELECT count(*) AS pending FROM (
        SELECT 1 FROM prism_staging_objects o WHERE o.prism_stream_id = s.prism_stream_id AND o.state = 'pending'
            AND (o.retry_time IS NULL OR o.retry_time <= clock_timestamp()) LIMIT :most) q) w
    WHERE w.pending > 0
    UNION ALL
    SELECT o.prism_table_id, 0, count(*) FROM prism_stream_batches b
    JOIN prism_staging_objects o ON o.prism_stream_batch_id = b.prism_stream_batch_id AND o.state = 'claimed'
    WHERE b.state = 'running' AND b.heartbeat_time < clock_timestamp() - make_interval(secs => :lease)
    GROUP BY o.prism_table_id
    UNION ALL
    SELECT prism_table_id, count(*), 0 FROM prism_staging_objects
    WHERE state = 'failed' AND retry_time <= clock_timestamp() GROUP BY prism_table_id
    UNION ALL
    SELECT prism_table_id, 0, count(*) FROM prism_abandoned_uploads a WHERE {IS_DUE} GROUP BY prism_table_id
) u GROUP BY prism_table_id ORDER BY prism_table_id
"""


def count_backlog(connection: Connection, at_most: int) -> int:
    """Pending objects of all streams, those that wait for another try included; counting stops at `at_most`."""
    statement = text("SELECT count(*) FROM (SELECT 1 FROM prism_staging_objects WHERE state = 'pending' LIMIT :most) q")
    return int(connection.execute(statement, {"most": at_most}).scalar_one())


@dataclass(frozen=True, kw_only=True)
class DueMerges:
    """Merge jobs of one partition that a worker could take now: due ones, and those of dead workers."""

    table_id: int
    date: date
    due: int
    abandoned: int


def due_merges(connection: Connection, now: datetime, lease_seconds: float) -> list[DueMerges]:
    """Partitions with work for Merge, the longest due first. Partitions in work are left out, and parked jobs before their time."""
    rows = connection.execute(
        text(
            "SELECT p.prism_table_id, p.partition_date, count(*) FILTER (WHERE j.ongoing_mark = 0) AS due, "
            "count(*) FILTER (WHERE j.ongoing_mark > 0) AS abandoned "
            "FROM prism_merge_jobs j JOIN prism_partitions p USING (prism_partition_id) "
            "WHERE (j.ongoing_mark = 0 AND (NOT j.parked OR j.retry_time <= :now) AND j.schedule_time <= :now AND NOT EXISTS ("
            "SELECT 1 FROM prism_merge_jobs r WHERE r.prism_partition_id = j.prism_partition_id AND r.ongoing_mark > 0)) "
            "OR (j.ongoing_mark > 0 AND j.heartbeat_time < clock_timestamp() - make_interval(secs => :lease)) "
            "GROUP BY p.prism_table_id, p.partition_date ORDER BY min(j.schedule_time), p.prism_table_id"
        ),
        {"now": now, "lease": lease_seconds},
    )
    return [
        DueMerges(table_id=row.prism_table_id, date=row.partition_date, due=row.due, abandoned=row.abandoned)
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class MergeQueue:
    """All merge jobs in figures; `next_time` is when the first waiting or parked one is due."""

    waiting: int
    running: int
    parked: int
    next_time: datetime | None


def merge_queue(connection: Connection) -> MergeQueue:
    """Figures for the sentence that says why no merge was started."""
    row = connection.execute(
        text(
            "SELECT count(*) FILTER (WHERE ongoing_mark = 0 AND NOT parked) AS waiting, "
            "count(*) FILTER (WHERE ongoing_mark > 0) AS running, count(*) FILTER (WHERE parked) AS parked, "
            "min(CASE WHEN parked THEN retry_time ELSE schedule_time END) FILTER (WHERE ongoing_mark = 0) AS next_time "
            "FROM prism_merge_jobs"
        )
    ).one()
    return MergeQueue(waiting=row.waiting, running=row.running, parked=row.parked, next_time=row.next_time)


@dataclass(frozen=True, kw_only=True)
class DayFigures:
    """What one partition holds now; bytes are those of Parquet objects, smallest and median by their kind."""

    rows: int
    small_objects: int
    small_bytes: int
    smallest_bytes: int
    median_bytes: int
    merged_objects: int
    merged_bytes: int
    smallest_merged_bytes: int
    median_merged_bytes: int


def day_figures(connection: Connection, wanted: Collection[tuple[int, date]]) -> dict[tuple[int, date], DayFigures]:
    """Figures by (table id, date) of the partitions named; those that do not exist are left out."""
    ordered = sorted(wanted)
    rows = connection.execute(
        text(_FIGURES), {"tables": [table for table, _ in ordered], "dates": [day for _, day in ordered]}
    )
    return {
        (row.prism_table_id, row.partition_date): DayFigures(
            rows=int(row.rows),
            small_objects=row.objects,
            small_bytes=int(row.bytes),
            smallest_bytes=int(row.smallest),
            median_bytes=int(row.median),
            merged_objects=row.ranges,
            merged_bytes=int(row.range_bytes),
            smallest_merged_bytes=int(row.range_smallest),
            median_merged_bytes=int(row.range_median),
        )
        for row in rows
    }


_FIGURES = """
SELECT p.prism_table_id, p.partition_date, s.*, r.*
FROM unnest(CAST(:tables AS bigint[]), CAST(:dates AS date[])) AS w (table_id, day)
JOIN prism_partitions p ON p.prism_table_id = w.table_id AND p.partition_date = w.day
CROSS JOIN LATERAL (SELECT count(*) AS objects, coalesce(sum(row_count), 0) AS rows,
    coalesce(sum(content_length), 0) AS bytes, coalesce(min(content_length), 0) AS smallest,
    coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY content_length), 0) AS median
    FROM prism_small_objects WHERE prism_partition_id = p.prism_partition_id) s
CROSS JOIN LATERAL (SELECT count(*) AS ranges, coalesce(sum(content_length), 0) AS range_bytes,
    coalesce(min(content_length), 0) AS range_smallest,
    coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY content_length), 0) AS range_median
    FROM prism_merge_ranges WHERE prism_partition_id = p.prism_partition_id AND lower_bound IS NOT NULL) r
"""
