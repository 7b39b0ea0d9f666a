"""Statements on prism_merge_ranges. The caller holds the partition's row for every change."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, RowMapping, text

from prism_assets.domain.errors import InvariantBroken, LeaseLost
from prism_assets.domain.files import MergedRange
from prism_assets.domain.fingerprints import combine
from prism_assets.domain.keys import TableKeys
from prism_assets.domain.merge_plan import MergePlan, PlannedRange
from prism_assets.domain.words import counted
from prism_assets.metadata.column_metrics import from_jsonb, to_jsonb


def load_chain(connection: Connection, keys: TableKeys, partition_id: int) -> list[MergedRange]:
    """The ranges of a partition of a table in order, without the sentinel. Reads without locks."""
    rows = connection.execute(text(_CHAIN), {"partition": partition_id})
    return [_range(row._mapping, keys) for row in rows]


COVERED_BY_RANGE = """
CROSS JOIN LATERAL (
    SELECT coalesce(sum(row_count + rows_erased), 0) AS rows,
        coalesce(sum(CAST(fingerprint AS numeric) + erased_fingerprint), 0) AS fingerprint
    FROM prism_small_objects
    WHERE prism_partition_id = r.prism_partition_id AND prism_small_object_id > r.lower_bound
        AND prism_small_object_id <= r.upper_bound) s
"""
"""Beside a range `r` what its small objects held, `s`: rows that were erased since count on both sides, as garbage
collections may have deleted small objects before."""
RANGE_DIFFERS = """
(r.row_count + r.rows_erased <> s.rows
    OR mod(CAST(r.fingerprint AS numeric) + r.erased_fingerprint - s.fingerprint, 18446744073709551616) <> 0)
"""
"""Whether a range holds other rows than its small objects.

Fingerprints are sums modulo 2^64 of signed numbers; numeric does not wrap, so their difference is a multiple of it.
"""
_RANGE = """
    p.partition_date AS date, r.lower_bound, r.upper_bound, r.content_length, r.row_count, r.min_time, r.max_time,
    r.fingerprint, r.file_format, r.metrics, r.revision, r.rows_erased, r.erased_fingerprint, r.erasure_id,
    r.definition_version
"""
_CHAIN = f"""
SELECT {_RANGE}
FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id)
WHERE r.prism_partition_id = :partition AND r.lower_bound IS NOT NULL
ORDER BY r.upper_bound
"""


def load_table_chains(connection: Connection, keys: TableKeys, table_id: int) -> dict[date, list[MergedRange]]:
    """The ranges of all partitions of a table by date, each in order, without sentinels. Reads without locks."""
    found: dict[date, list[MergedRange]] = {}
    for row in connection.execute(text(_TABLE_CHAINS), {"table": table_id}):
        found.setdefault(row.date, []).append(_range(row._mapping, keys))
    return found


_TABLE_CHAINS = f"""
SELECT {_RANGE}
FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id)
WHERE p.prism_table_id = :table AND r.lower_bound IS NOT NULL
ORDER BY r.prism_partition_id, r.upper_bound
"""


@dataclass(frozen=True, kw_only=True)
class RangeChange:
    """When a range was made, extended or rewritten last, and how often it was rewritten."""

    revision: int
    update_time: datetime


def load_bounds(
    connection: Connection, partition_ids: Collection[int]
) -> dict[int, dict[tuple[int, int], RangeChange]]:
    """The ranges of partitions, by partition id and by their bounds, in order. Without sentinels, and without locks."""
    found: dict[int, dict[tuple[int, int], RangeChange]] = {}
    for row in connection.execute(text(_BOUNDS), {"ids": list(partition_ids)}):
        change = RangeChange(revision=row.revision, update_time=row.update_time)
        found.setdefault(row.prism_partition_id, {})[row.lower_bound, row.upper_bound] = change
    return found


_BOUNDS = """
SELECT prism_partition_id, lower_bound, upper_bound, revision, update_time FROM prism_merge_ranges
WHERE prism_partition_id = ANY(:ids) AND lower_bound IS NOT NULL
ORDER BY prism_partition_id, upper_bound
"""


def _range(row: RowMapping, keys: TableKeys) -> MergedRange:
    fields = dict(row)
    key = keys.merged_object(fields.pop("date"), row["lower_bound"], row["upper_bound"], row["revision"])
    return MergedRange(bucket=keys.bucket, key=key, **{**fields, "metrics": from_jsonb(row["metrics"])})


@dataclass(frozen=True, kw_only=True)
class RangeSizes:
    """The merged objects of one closed partition, in order of their ranges; bytes.

    `last_is_late` says that nothing but rows that came after the close is above the range before the last one.
    """

    table_id: int
    date: date
    sizes: tuple[int, ...]
    last_is_late: bool


def range_sizes(connection: Connection, table_ids: Collection[int], since: date) -> list[RangeSizes]:
    """Sizes of the merged objects of closed partitions from `since` on, by table and date. Reads without locks."""
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
    """Merged bytes per byte of the small objects they came from, as far as this partition has ranges. No locks."""
    value = connection.execute(text(_SHRINKAGE), {"id": partition_id}).scalar_one()
    return None if value is None or value <= 0 else float(value)


_SHRINKAGE = """
SELECT (SELECT sum(content_length) FROM prism_merge_ranges WHERE prism_partition_id = :id)
    / nullif((
        SELECT sum(content_length) FROM prism_small_objects WHERE prism_partition_id = :id
            AND prism_small_object_id <= (SELECT max(upper_bound) FROM prism_merge_ranges
                WHERE prism_partition_id = :id)), 0)
"""


def check_chain_end(connection: Connection, partition_id: int, plan: MergePlan) -> None:
    """LeaseLost if the chain no longer ends where the plan began: somebody else merged meanwhile."""
    end = connection.execute(text(_CHAIN_END), {"id": partition_id}).scalar_one()
    if end != plan.chain_end:
        raise LeaseLost(f"the ranges end at {end}, not at {plan.chain_end} as planned; nothing was changed")


_CHAIN_END = "SELECT coalesce(max(upper_bound), 0) FROM prism_merge_ranges WHERE prism_partition_id = :id"


def save_range(
    connection: Connection,
    partition_id: int,
    planned: PlannedRange,
    written: MergedRange,
    *,
    definition_version: int,
) -> None:
    """Inserts a range behind the chain, or moves the upper bound of the one that was extended.

    `definition_version` is the definition whose column names the object has.
    """
    if written.row_count != planned.row_count:
        raise InvariantBroken(
            f"the merged object {written.key} holds {counted(written.row_count, 'row')}, its inputs {planned.row_count}"
        )
    connection.execute(text(_SENTINEL), {"id": partition_id})
    values = {**dataclasses.asdict(written), "metrics": to_jsonb(written.metrics)}
    connection.execute(text(_SAVE), {"id": partition_id, "version": definition_version, **values})


_SENTINEL = """
INSERT INTO prism_merge_ranges
    (prism_partition_id, lower_bound, upper_bound, content_length, row_count, fingerprint, create_time, update_time)
VALUES (:id, NULL, 0, 0, 0, 0, clock_timestamp(), clock_timestamp())
ON CONFLICT (prism_partition_id, lower_bound) DO NOTHING
"""
_SAVE = """
INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, min_time,
    max_time, fingerprint, file_format, metrics, revision, rows_erased, erased_fingerprint, erasure_id,
    definition_version, create_time, update_time)
VALUES (:id, :lower_bound, :upper_bound, :content_length, :row_count, :min_time, :max_time, :fingerprint, :file_format,
    CAST(:metrics AS jsonb), :revision, :rows_erased, :erased_fingerprint, :erasure_id, :version, clock_timestamp(),
    clock_timestamp())
ON CONFLICT (prism_partition_id, lower_bound) DO UPDATE SET upper_bound = EXCLUDED.upper_bound,
    content_length = EXCLUDED.content_length, row_count = EXCLUDED.row_count, min_time = EXCLUDED.min_time,
    max_time = EXCLUDED.max_time, fingerprint = EXCLUDED.fingerprint, file_format = EXCLUDED.file_format,
    metrics = EXCLUDED.metrics, revision = EXCLUDED.revision, rows_erased = EXCLUDED.rows_erased,
    erased_fingerprint = EXCLUDED.erased_fingerprint, erasure_id = EXCLUDED.erasure_id,
    definition_version = EXCLUDED.definition_version, update_time = EXCLUDED.update_time
"""


def load_inputs(connection: Connection, partition_id: int, planned: PlannedRange) -> InputTotals:
    """What the objects that a range is made of hold now, the extended one among them. The caller holds the partition."""
    first = planned.extends.upper_bound if planned.extends else planned.lower_bound
    values = {"id": partition_id, "first": first, "upper": planned.upper_bound}
    extended = planned.extends.upper_bound if planned.extends else None
    row = connection.execute(text(_INPUTS), {**values, "extended": extended}).one()
    return InputTotals(
        objects=row.objects,
        rows=int(row.rows),
        fingerprint=combine([int(row.print)]),
        erasure_id=row.erasure_id or 0,
    )


@dataclass(frozen=True, kw_only=True)
class InputTotals:
    """Some objects in figures; none of them holds a row of an erasure up to `erasure_id`."""

    objects: int
    rows: int
    fingerprint: int
    erasure_id: int

    def are_as_planned(self, planned: PlannedRange) -> bool:
        """Whether none of them was rewritten since a merge of them was planned."""
        files = planned.inputs
        said = len(files), sum(file.row_count for file in files), combine(file.fingerprint for file in files)
        return said == (self.objects, self.rows, self.fingerprint)


_INPUTS = """
SELECT count(*) AS objects, coalesce(sum(row_count), 0) AS rows, coalesce(sum(fingerprint), 0) AS print,
    min(erasure_id) AS erasure_id
FROM (
    SELECT row_count, fingerprint, erasure_id FROM prism_small_objects
    WHERE prism_partition_id = :id AND prism_small_object_id > :first AND prism_small_object_id <= :upper
    UNION ALL
    SELECT row_count, fingerprint, erasure_id FROM prism_merge_ranges
    WHERE prism_partition_id = :id AND upper_bound = :extended AND lower_bound IS NOT NULL
) f
"""


def record_adoption(
    connection: Connection,
    partition_id: int,
    before: MergedRange,
    after: MergedRange,
    *,
    definition_version: int,
) -> bool:
    """Records the object of the same rows that an adoption rewrote a range to; False if the range is another by now.

    It is left also where a merge wrote it under a later definition than the rewriting. The caller holds the partition's
    row, which merges take to extend ranges.
    """
    told = {"before": before.revision, "version": definition_version}
    values = {**dataclasses.asdict(after), "metrics": to_jsonb(after.metrics), **told}
    return bool(connection.execute(text(_RECORD_ADOPTION), {"id": partition_id, **values}).rowcount)


_RECORD_ADOPTION = """
UPDATE prism_merge_ranges SET content_length = :content_length, file_format = :file_format,
    metrics = CAST(:metrics AS jsonb), revision = :revision, definition_version = :version,
    update_time = clock_timestamp()
WHERE prism_partition_id = :id AND lower_bound = :lower_bound AND upper_bound = :upper_bound AND revision = :before
    AND row_count = :row_count AND fingerprint = :fingerprint AND definition_version <= :version
"""
