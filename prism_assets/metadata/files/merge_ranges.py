"""Queries on prism_merge_ranges. Only `replacements.py` replaces ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, text

from prism_assets.domain.files.data_file import MergedRange
from prism_assets.domain.files.keys import TableKeys
from prism_assets.metadata.tables.column_metrics import from_jsonb


def load_chain(connection: Connection, keys: TableKeys, partition_id: int) -> list[MergedRange]:
    """The ranges of a partition of a table in order, without the sentinel. Reads without locks."""
    rows = connection.execute(text(_CHAIN), {"partition": partition_id})
    return [range_of(dict(row._mapping), keys) for row in rows]


COVERED_BY_RANGE = """
CROSS JOIN LATERAL (
    SELECT r.archived_rows + coalesce(sum(row_count + rows_erased), 0) AS rows,
        r.archived_fingerprint + coalesce(sum(CAST(fingerprint AS numeric) + erased_fingerprint), 0) AS fingerprint
    FROM prism_small_objects
    WHERE prism_partition_id = r.prism_partition_id AND prism_small_object_id > r.lower_bound
        AND prism_small_object_id <= r.upper_bound) s
"""
"""Beside a range `r` the rows and fingerprint `s` of its small objects, archived ones included.

Erased rows count on both sides, because garbage collection may have deleted small objects before the erasure.
"""
RANGE_DIFFERS = """
(r.row_count + r.rows_erased <> s.rows
    OR mod(CAST(r.fingerprint AS numeric) + r.erased_fingerprint - s.fingerprint, 18446744073709551616) <> 0)
"""
"""Whether the rows of a range differ from those of its small objects.

Fingerprints are sums modulo 2^64 of signed numbers. Numeric does not wrap, so equal fingerprints differ by a multiple
of 2^64.
"""
_RANGE = """
    p.partition_date AS date, r.lower_bound, r.upper_bound, r.content_length, r.row_count, r.min_time, r.max_time,
    r.fingerprint, r.file_format, r.metrics, r.rewrite_id, r.rows_erased, r.erased_fingerprint, r.erasure_id,
    r.definition_version
"""
_CHAIN = f"""
SELECT {_RANGE}
FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id)
WHERE r.prism_partition_id = :partition AND r.lower_bound IS NOT NULL
ORDER BY r.upper_bound
"""


def load_day_chains(
    connection: Connection, keys: TableKeys, partition_ids: Collection[int]
) -> dict[date, list[MergedRange]]:
    """Returns the ranges of partitions of a table by date, each in order, without sentinels. Reads without locks."""
    found: dict[date, list[MergedRange]] = {}
    for row in connection.execute(text(_DAY_CHAINS), {"partitions": list(partition_ids)}):
        found.setdefault(row.date, []).append(range_of(dict(row._mapping), keys))
    return found


_DAY_CHAINS = f"""
SELECT {_RANGE}
FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id)
WHERE r.prism_partition_id = ANY(:partitions) AND r.lower_bound IS NOT NULL
ORDER BY r.prism_partition_id, r.upper_bound
"""


def load_table_chains(connection: Connection, keys: TableKeys, table_id: int) -> dict[date, list[MergedRange]]:
    """Returns the ranges of all partitions of a table by date, each in order, without sentinels.

    Reads without locks.
    """
    found: dict[date, list[MergedRange]] = {}
    for row in connection.execute(text(_TABLE_CHAINS), {"table": table_id}):
        found.setdefault(row.date, []).append(range_of(dict(row._mapping), keys))
    return found


_TABLE_CHAINS = f"""
SELECT {_RANGE}
FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id)
WHERE p.prism_table_id = :table AND r.lower_bound IS NOT NULL
ORDER BY r.prism_partition_id, r.upper_bound
"""


@dataclass(frozen=True, kw_only=True)
class RangeChange:
    """The last rewrite of a range, and the time of its last change."""

    rewrite_id: int
    update_time: datetime


def load_bounds(
    connection: Connection, partition_ids: Collection[int]
) -> dict[int, dict[tuple[int, int], RangeChange]]:
    """Returns the ranges of partitions, by partition id and bounds, in order, without sentinels.

    Reads without locks.
    """
    found: dict[int, dict[tuple[int, int], RangeChange]] = {}
    for row in connection.execute(text(_BOUNDS), {"ids": list(partition_ids)}):
        change = RangeChange(rewrite_id=row.rewrite_id, update_time=row.update_time)
        found.setdefault(row.prism_partition_id, {})[row.lower_bound, row.upper_bound] = change
    return found


_BOUNDS = """
SELECT prism_partition_id, lower_bound, upper_bound, rewrite_id, update_time FROM prism_merge_ranges
WHERE prism_partition_id = ANY(:ids) AND lower_bound IS NOT NULL
ORDER BY prism_partition_id, upper_bound
"""


def range_of(row: Mapping[str, Any], keys: TableKeys) -> MergedRange:
    """Builds a merged range, with its key, from a row."""
    fields = dict(row)
    key = keys.merged_object(fields.pop("date"), row["lower_bound"], row["upper_bound"], row["rewrite_id"])
    return MergedRange(bucket=keys.bucket, key=key, **{**fields, "metrics": from_jsonb(row["metrics"])})


@dataclass(frozen=True, kw_only=True)
class RangeSizes:
    """Sizes in bytes of the merged objects of one closed partition, in order of their ranges."""

    table_id: int
    date: date
    sizes: tuple[int, ...]
    last_is_late: bool
    """The last range holds only rows that came after the close."""


def range_sizes(connection: Connection, table_ids: Collection[int], since: date) -> list[RangeSizes]:
    """Returns the sizes of merged objects of closed partitions from `since` on, by table and date.

    Reads without locks.
    """
    rows = connection.execute(text(_SIZES), {"tables": list(table_ids), "since": since})
    return [
        RangeSizes(table_id=row.table_id, date=row.date, sizes=tuple(row.sizes), last_is_late=row.last_is_late)
        for row in rows
    ]


_SIZES = """
SELECT p.prism_table_id AS table_id, p.partition_date AS date,
    array_agg(r.content_length ORDER BY r.upper_bound) AS sizes,
    max(r.lower_bound) >= p.last_live_object_id AS last_is_late
FROM prism_partitions p
JOIN prism_merge_ranges r ON r.prism_partition_id = p.prism_partition_id AND r.lower_bound IS NOT NULL
WHERE p.prism_table_id = ANY(:tables) AND p.partition_date >= :since AND p.last_live_object_id IS NOT NULL
GROUP BY p.prism_partition_id
ORDER BY p.prism_table_id, p.partition_date
"""


def observed_shrinkage(connection: Connection, partition_id: int) -> float | None:
    """Returns merged bytes per byte of small objects, over the merged part of a partition; None without ranges.

    No locks.
    """
    value = connection.execute(text(_SHRINKAGE), {"id": partition_id}).scalar_one()
    return None if value is None or value <= 0 else float(value)


_SHRINKAGE = """
SELECT (SELECT sum(content_length) FROM prism_merge_ranges WHERE prism_partition_id = :id)
    / nullif((
        SELECT coalesce(sum(content_length), 0) FROM prism_small_objects WHERE prism_partition_id = :id
            AND prism_small_object_id <= (SELECT max(upper_bound) FROM prism_merge_ranges
                WHERE prism_partition_id = :id))
        + (SELECT sum(archived_bytes) FROM prism_merge_ranges WHERE prism_partition_id = :id), 0)
"""


def count_archived(connection: Connection, partition_id: int) -> int:
    """Counts the small objects of a day whose rows left for the archive. Reads without locks."""
    return int(connection.execute(text(_COUNT_ARCHIVED), {"partition": partition_id}).scalar_one())


_COUNT_ARCHIVED = """
SELECT CAST(coalesce(sum(archived_objects), 0) AS bigint) FROM prism_merge_ranges WHERE prism_partition_id = :partition
"""


def find_unequal(connection: Connection, partition_id: int) -> str | None:
    """Describes the first range of a day whose rows differ from those of its small objects; None without such a range.

    The caller holds the partition's row.
    """
    wrong: str | None = connection.execute(text(_UNEQUAL), {"partition": partition_id}).scalar()
    return wrong


_UNEQUAL = f"""
SELECT format('the merged range (%s, %s] holds %s rows and not the same as the %s of its small objects',
    r.lower_bound, r.upper_bound, r.row_count, s.rows)
FROM prism_merge_ranges r {COVERED_BY_RANGE}
WHERE r.prism_partition_id = :partition AND r.lower_bound IS NOT NULL AND {RANGE_DIFFERS}
LIMIT 1
"""
