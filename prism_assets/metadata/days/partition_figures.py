"""Figures of partitions for people: sums over objects, ranges and records. Not for the hot path. Reads without locks.

Objects of folds count as merged, because a day of records has no others. Rows are counted in objects readers use,
because an erasure leaves small objects below a range unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class PartitionFigures:
    """Sums of one partition. Bytes are those of Parquet objects.

    `rows_erased` are erased rows that readers saw earlier.
    """

    rows: int = 0
    rows_erased: int = 0
    small_objects: int = 0
    unmerged_objects: int = 0
    unmerged_bytes: int = 0
    merged_objects: int = 0
    merged_bytes: int = 0
    last_arrival: datetime | None = None


def partition_figures(connection: Connection, table_ids: Collection[int]) -> defaultdict[int, PartitionFigures]:
    """Returns figures of all partitions of some tables by partition id. Partitions without objects have zeros."""
    found: defaultdict[int, PartitionFigures] = defaultdict(PartitionFigures)
    for row in connection.execute(text(_OF_TABLES), {"tables": list(table_ids)}):
        found[row.prism_partition_id] = PartitionFigures(
            rows=int(row.rows),
            rows_erased=int(row.rows_erased),
            small_objects=row.objects,
            unmerged_objects=row.unmerged,
            unmerged_bytes=int(row.unmerged_bytes),
            merged_objects=row.ranges,
            merged_bytes=int(row.range_bytes),
            last_arrival=row.last_arrival,
        )
    return found


# Objects of ranges, or objects of folds; no partition has both.
_MERGED = """
    SELECT content_length, row_count, rows_erased FROM prism_merge_ranges
    WHERE prism_partition_id = p.prism_partition_id AND lower_bound IS NOT NULL
    UNION ALL
    SELECT content_length, row_count, 0 AS rows_erased FROM prism_record_objects
    WHERE prism_partition_id = p.prism_partition_id AND replaced_by IS NULL AND part = 'visible'
"""
# Small objects above all ranges.
_UNMERGED = "prism_small_object_id > p.desired_manifest_version"
_OF_TABLES = f"""
SELECT p.prism_partition_id, s.objects, s.rows + r.rows AS rows, s.rows_erased + r.rows_erased AS rows_erased,
    s.unmerged, s.unmerged_bytes, s.last_arrival, r.ranges, r.range_bytes
FROM prism_partitions p
CROSS JOIN LATERAL (
    SELECT count(*) AS objects,
        coalesce(sum(row_count) FILTER (WHERE {_UNMERGED}), 0) AS rows,
        coalesce(sum(rows_erased) FILTER (WHERE {_UNMERGED}), 0) AS rows_erased,
        count(*) FILTER (WHERE {_UNMERGED}) AS unmerged,
        coalesce(sum(content_length) FILTER (WHERE {_UNMERGED}), 0) AS unmerged_bytes,
        max(upload_start_time) AS last_arrival
    FROM prism_small_objects WHERE prism_partition_id = p.prism_partition_id
) s
CROSS JOIN LATERAL (
    SELECT count(*) AS ranges, coalesce(sum(content_length), 0) AS range_bytes, coalesce(sum(row_count), 0) AS rows,
        coalesce(sum(rows_erased), 0) AS rows_erased
    FROM ({_MERGED}) m
) r
WHERE p.prism_table_id = ANY(:tables)
"""


@dataclass(frozen=True, kw_only=True)
class DayFigures:
    """The current content of one partition. Bytes are those of Parquet objects, smallest and median by kind."""

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
    """Returns figures of the given partitions by (table id, date). Leaves out missing ones."""
    ordered = sorted(wanted)
    rows = connection.execute(
        text(_OF_DAYS), {"tables": [table for table, _ in ordered], "dates": [day for _, day in ordered]}
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


_OF_DAYS = f"""
SELECT p.prism_table_id, p.partition_date, s.objects, s.rows + r.rows AS rows, s.bytes, s.smallest, s.median,
    r.ranges, r.range_bytes, r.range_smallest, r.range_median
FROM unnest(CAST(:tables AS bigint[]), CAST(:dates AS date[])) AS w (table_id, day)
JOIN prism_partitions p ON p.prism_table_id = w.table_id AND p.partition_date = w.day
CROSS JOIN LATERAL (
    SELECT count(*) AS objects, coalesce(sum(row_count) FILTER (WHERE {_UNMERGED}), 0) AS rows,
        coalesce(sum(content_length), 0) AS bytes,
        coalesce(min(content_length), 0) AS smallest,
        coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY content_length), 0) AS median
    FROM prism_small_objects WHERE prism_partition_id = p.prism_partition_id
) s
CROSS JOIN LATERAL (
    SELECT count(*) AS ranges, coalesce(sum(content_length), 0) AS range_bytes,
        coalesce(min(content_length), 0) AS range_smallest,
        coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY content_length), 0) AS range_median,
        coalesce(sum(row_count), 0) AS rows
    FROM ({_MERGED}) m
) r
"""
