"""Figures of recorded Iceberg tables, for people and checks. Not for the hot path. Reads without locks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition, current_publication
from prism_assets.domain.iceberg.snapshots import wanted_snapshot
from prism_assets.metadata.iceberg.iceberg_tables import HAS_ROWS, ICEBERG_PARTITION


@dataclass(frozen=True, kw_only=True)
class ListedRows:
    """The rows of a day in the last commit."""

    table_id: int
    date: date
    rows: int


def listed_rows(connection: Connection, table_ids: Collection[int]) -> list[ListedRows]:
    """Returns the rows of all days listed by the last commits, from PostgreSQL. Later rows are left out.

    A merged day is counted by its ranges, and by the small objects above them.
    """
    rows = connection.execute(text(_LISTED), {"tables": list(table_ids)})
    return [ListedRows(**row._mapping) for row in rows]


# A range extended since then has a higher bound than the recorded one. Its rows are counted by its small objects, archived ones included.
# The version of a day of records is the number of a fold: the commit lists the objects not replaced by then.
_LISTED = """
SELECT p.prism_table_id AS table_id, p.partition_date AS date, CAST(r.rows + s.rows + f.rows AS bigint) AS rows
FROM prism_publications q JOIN prism_partitions p USING (prism_partition_id)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(row_count), 0) AS rows, coalesce(max(upper_bound), 0) AS upper_bound FROM prism_merge_ranges
    WHERE prism_partition_id = q.prism_partition_id AND lower_bound IS NOT NULL AND upper_bound <= q.version
) r
CROSS JOIN LATERAL (
    SELECT coalesce(sum(row_count), 0) + (SELECT coalesce(sum(g.archived_rows), 0) FROM prism_merge_ranges g
        WHERE g.prism_partition_id = q.prism_partition_id AND g.upper_bound > q.version) AS rows FROM prism_small_objects
    WHERE prism_partition_id = q.prism_partition_id AND prism_small_object_id > r.upper_bound
        AND prism_small_object_id <= greatest(q.published_object_id, q.version)
) s
CROSS JOIN LATERAL (
    SELECT coalesce(sum(row_count), 0) AS rows FROM prism_record_objects
    WHERE prism_partition_id = q.prism_partition_id AND part = 'visible' AND fold_id <= q.version
        AND (replaced_by IS NULL OR replaced_by > q.version)
) f
WHERE q.publisher = 'iceberg' AND q.version >= 0 AND p.prism_table_id = ANY(:tables)
ORDER BY p.prism_table_id, p.partition_date
"""


@dataclass(frozen=True, kw_only=True)
class WaitingRows:
    """Days of a table with rows not yet listed, and how many seconds the first of these rows have waited."""

    table_id: int
    days: int
    seconds: float


def waiting_rows(connection: Connection, table_ids: Collection[int]) -> dict[int, WaitingRows]:
    """Returns waiting rows by table id. Days that were only merged do not count: their readers miss nothing."""
    rows = connection.execute(text(_WAITING), {"tables": list(table_ids)})
    return {row.table_id: WaitingRows(**row._mapping) for row in rows}


_WAITING = """
SELECT p.prism_table_id AS table_id, count(*) AS days,
    greatest(CAST(extract(epoch FROM clock_timestamp() - min(s.commit_time)) AS double precision), 0) AS seconds
FROM prism_publications q JOIN prism_partitions p USING (prism_partition_id)
CROSS JOIN LATERAL (
    (SELECT commit_time FROM prism_small_objects
    WHERE prism_partition_id = q.prism_partition_id
        AND prism_small_object_id > greatest(q.published_object_id, q.version)
    ORDER BY prism_small_object_id LIMIT 1)
    UNION ALL
    (SELECT finish_time FROM prism_rewrites
    WHERE p.last_object_id = 0 AND p.desired_manifest_version > q.version AND kind IN ('fold', 'rebuild_records')
        AND prism_rewrite_id = (
        SELECT coalesce(min(fold_id), p.desired_manifest_version) FROM prism_record_objects
        WHERE prism_partition_id = q.prism_partition_id AND part = 'visible' AND fold_id > q.version AND merges = 0))
) s
WHERE q.publisher = 'iceberg' AND q.dirty AND p.prism_table_id = ANY(:tables)
GROUP BY p.prism_table_id
"""


@dataclass(frozen=True, kw_only=True)
class UnlistedDay:
    """A day with other content than recorded, left out by the last commit.

    `old_objects` have timestamps in milliseconds.
    """

    table_id: int
    date: date
    old_objects: int


def unlisted_days(connection: Connection, table_ids: Collection[int]) -> list[UnlistedDay]:
    """Returns compared days whose record differs from `wanted_snapshot`, by table and date."""
    found = []
    for row in connection.execute(text(_BEHIND), {"tables": list(table_ids)}):
        values = dict(row._mapping)
        old_objects = values.pop("old_objects")
        partition = Partition(**values)
        if current_publication(partition) != wanted_snapshot(partition):
            found.append(UnlistedDay(table_id=partition.table_id, date=partition.date, old_objects=old_objects))
    return found


_BEHIND = f"""{ICEBERG_PARTITION}, s.old + r.old AS old_objects
FROM prism_iceberg_tables t JOIN prism_partitions p USING (prism_table_id)
LEFT JOIN prism_publications q ON q.prism_partition_id = p.prism_partition_id AND q.publisher = 'iceberg'
CROSS JOIN LATERAL (
    SELECT count(*) AS old FROM prism_small_objects
    WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > p.desired_manifest_version
        AND file_format = 1
) s
CROSS JOIN LATERAL (
    SELECT count(*) AS old FROM prism_merge_ranges
    WHERE prism_partition_id = p.prism_partition_id AND lower_bound IS NOT NULL AND file_format = 1
) r
WHERE t.prism_table_id = ANY(:tables) AND t.table_uuid IS NOT NULL
    AND {HAS_ROWS}
    AND q.dirty IS NOT TRUE AND p.expire_time IS NULL
    AND (q.version IS NULL OR q.version < p.desired_manifest_version OR q.published_object_id < p.last_object_id
        OR q.revision < p.revision)
ORDER BY p.prism_table_id, p.partition_date
"""


@dataclass(frozen=True, kw_only=True)
class IcebergBytes:
    """The bytes of a table."""

    closed_small_bytes: int
    """Small objects of closed days whose merge is late."""
    all_bytes: int
    """All listed objects."""
    foreign_snapshots: int
    """Snapshots of other writers, reverted within seven days."""


def load_bytes(connection: Connection, table_id: int) -> IcebergBytes:
    """Sums over all objects of a table. A merge is late an hour after it was due."""
    return IcebergBytes(**connection.execute(text(_BYTES), {"table": table_id}).one()._mapping)


_BYTES = f"""
WITH days AS MATERIALIZED (
    SELECT prism_partition_id, last_live_object_id IS NOT NULL AS closed, desired_manifest_version,
        clock_timestamp() - make_interval(secs => t.merge_interval) - interval '1 hour' AS late_before
    FROM prism_partitions p JOIN prism_tables t USING (prism_table_id)
    WHERE p.prism_table_id = :table AND {HAS_ROWS} AND expire_time IS NULL
), small AS (
    SELECT coalesce(sum(s.content_length) FILTER (WHERE d.closed AND s.commit_time < d.late_before), 0) AS closed,
        coalesce(sum(s.content_length), 0) AS bytes
    FROM days d JOIN prism_small_objects s ON s.prism_partition_id = d.prism_partition_id
        AND s.prism_small_object_id > d.desired_manifest_version
), ranges AS (
    SELECT coalesce(sum(r.content_length), 0) AS bytes FROM days d JOIN prism_merge_ranges r USING (prism_partition_id)
), records AS (
    SELECT coalesce(sum(o.content_length), 0) AS bytes FROM days d JOIN prism_record_objects o USING (prism_partition_id)
    WHERE o.replaced_by IS NULL AND o.part = 'visible'
)
SELECT CAST(small.closed AS bigint) AS closed_small_bytes, CAST(small.bytes + ranges.bytes + records.bytes AS bigint) AS all_bytes,
    (SELECT CAST(coalesce(sum(foreign_snapshots), 0) AS bigint) FROM prism_iceberg_log
        WHERE prism_table_id = :table AND commit_time > clock_timestamp() - interval '7 days') AS foreign_snapshots
FROM small, ranges, records
"""
