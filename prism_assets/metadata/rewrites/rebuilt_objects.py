"""Statements on prism_rebuilt_objects: converted staging objects of a rebuild, whose rows are in staged files.

Ranges keep their bounds, and small objects their ids. One transaction replaces all objects by the staged ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection, text

from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.work.rebuild import RebuildResult
from prism_assets.metadata.files.small_objects import small_object_of
from prism_assets.metadata.rewrites import staged_files
from prism_assets.metadata.rewrites.rebuild_sources import SourceToRebuild
from prism_assets.metadata.rewrites.rebuilds import Rebuild


def add_converted(
    connection: Connection, rebuild: Rebuild, converted: Sequence[tuple[SourceToRebuild, RebuildResult]]
) -> None:
    """Records the new rows of objects, or that objects are missing. The caller holds the lease of the day."""
    if not converted:
        return
    rows = [
        {
            "rebuild": rebuild.rewrite_id,
            "staging": known.staging_object_id,
            "object": known.object_id,
            "seen": known.rebuilds,
            "missing": result.is_missing,
            "filtered": result.lines_filtered,
            "set_aside": result.lines_quarantined,
            "erased": result.lines_erased,
            "elsewhere": result.lines_elsewhere,
            "quarantined": json.dumps([asdict(count) for count in result.quarantined]),
            "key": result.quarantine_key,
            "other_dates": list(result.other_dates),
            "errors": json.dumps([asdict(error) for error in result.value_errors]) if result.value_errors else None,
        }
        for known, result in converted
    ]
    connection.execute(text(_ADD_CONVERTED), rows)
    files = [_staged(rebuild, known, result.small) for known, result in converted if result.small]
    staged_files.add(connection, rebuild, rebuild.partition_id, files)


def _staged(rebuild: Rebuild, known: SourceToRebuild, small: SmallObject) -> tuple[SmallObject, int | None]:
    version, erasure = rebuild.definition_version, rebuild.erasure_id
    return replace(small, definition_version=version, erasure_id=erasure), known.rewrite_id


_ADD_CONVERTED = """
INSERT INTO prism_rebuilt_objects (prism_rewrite_id, prism_staging_object_id, small_object_id, seen_rebuilds, missing,
    rows_filtered, rows_quarantined, rows_erased, rows_elsewhere, quarantined, quarantine_key, value_errors, other_dates)
VALUES (:rebuild, :staging, :object, :seen, :missing, :filtered, :set_aside, :erased, :elsewhere,
    CAST(:quarantined AS jsonb), :key, CAST(:errors AS jsonb), CAST(:other_dates AS date[]))
"""


def leave_out(connection: Connection, rebuild: Rebuild) -> list[str]:
    """Leaves out missing objects, and objects merged with them. Returns the URLs of missing objects.

    A merged object holds the rows of many, and stays unchanged if one of these cannot be made again.
    """
    values = {"rebuild": rebuild.rewrite_id, "partition": rebuild.partition_id}
    connection.execute(text(_LEAVE_OUT), values)
    return list(connection.execute(text(_MISSING), values).scalars())


_MISSING = """
SELECT format('s3://%s/%s', o.bucket_name, o.object_key) FROM prism_rebuilt_objects r
JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE r.prism_rewrite_id = :rebuild AND r.missing ORDER BY 1
"""
# The ranges come first: each object is then compared with the unchanged ranges, not with every missing object.
_LEAVE_OUT = """
WITH kept AS MATERIALIZED (
    SELECT g.lower_bound, g.upper_bound FROM prism_merge_ranges g
    WHERE g.prism_partition_id = :partition AND EXISTS (SELECT 1 FROM prism_rebuilt_objects m
        WHERE m.prism_rewrite_id = :rebuild AND m.missing AND m.small_object_id > g.lower_bound
            AND m.small_object_id <= g.upper_bound))
UPDATE prism_rebuilt_objects r SET left_out = NOT r.left_out
WHERE r.prism_rewrite_id = :rebuild AND r.left_out <> (r.missing OR EXISTS (SELECT 1 FROM kept
    WHERE r.small_object_id > kept.lower_bound AND r.small_object_id <= kept.upper_bound))
"""


@dataclass(frozen=True, kw_only=True)
class RangeToRebuild:
    """A range of the day with objects to be remade. `rewrite_id` wrote its current object."""

    lower_bound: int
    upper_bound: int
    rewrite_id: int


def load_ranges_to_rebuild(connection: Connection, rebuild: Rebuild) -> list[RangeToRebuild]:
    """Returns ranges without a staged file, in order. Reads without locks, or under the lock of the partition's row."""
    values = {"rebuild": rebuild.rewrite_id, "partition": rebuild.partition_id}
    return [RangeToRebuild(**row._mapping) for row in connection.execute(text(_RANGES), values)]


_RANGES = """
SELECT g.lower_bound, g.upper_bound, g.rewrite_id FROM prism_merge_ranges g
WHERE g.prism_partition_id = :partition AND g.lower_bound IS NOT NULL
    AND EXISTS (SELECT 1 FROM prism_rebuilt_objects r
        WHERE r.prism_rewrite_id = :rebuild AND NOT r.left_out
            AND r.small_object_id > g.lower_bound AND r.small_object_id <= g.upper_bound)
    AND NOT EXISTS (SELECT 1 FROM prism_staged_files f
        WHERE f.prism_rewrite_id = :rebuild AND f.prism_partition_id = g.prism_partition_id
            AND f.lower_bound = g.lower_bound AND f.upper_bound = g.upper_bound AND f.replaces = g.rewrite_id)
ORDER BY g.upper_bound
"""


def load_inputs(
    connection: Connection, keys: TableKeys, rebuild: Rebuild, above: int, upper_bound: int, limit: int
) -> list[SmallObject]:
    """Returns the future small objects of the day with above < id <= upper_bound, by id. Reads without locks."""
    rows = connection.execute(
        text(_INPUTS),
        {
            "rebuild": rebuild.rewrite_id,
            "partition": rebuild.partition_id,
            "above": above,
            "upper": upper_bound,
            "limit": limit,
        },
    )
    return [small_object_of(dict(row._mapping), keys) for row in rows]


_INPUTS = """
SELECT s.prism_small_object_id AS object_id, s.prism_staging_object_id AS staging_object_id,
    p.partition_date AS date, CAST(NULL AS jsonb) AS metrics, s.generation, s.delayed,
    CASE WHEN s.new THEN f.rewrite_id ELSE s.rewrite_id END AS rewrite_id,
    CASE WHEN s.new THEN f.content_length ELSE s.content_length END AS content_length,
    CASE WHEN s.new THEN f.upload_start_time ELSE s.upload_start_time END AS upload_start_time,
    CASE WHEN s.new THEN f.row_count ELSE s.row_count END AS row_count,
    CASE WHEN s.new THEN f.min_time ELSE s.min_time END AS min_time,
    CASE WHEN s.new THEN f.max_time ELSE s.max_time END AS max_time,
    CASE WHEN s.new THEN f.fingerprint ELSE s.fingerprint END AS fingerprint,
    CASE WHEN s.new THEN f.file_format ELSE s.file_format END AS file_format,
    CASE WHEN s.new THEN f.definition_version ELSE s.definition_version END AS definition_version
FROM (
    SELECT s.*, EXISTS (SELECT 1 FROM prism_rebuilt_objects r WHERE r.prism_rewrite_id = :rebuild
        AND r.small_object_id = s.prism_small_object_id AND NOT r.left_out) AS new
    FROM prism_small_objects s
    WHERE s.prism_partition_id = :partition AND s.prism_small_object_id > :above AND s.prism_small_object_id <= :upper
    ORDER BY s.prism_small_object_id LIMIT :limit
) s
JOIN prism_partitions p USING (prism_partition_id)
LEFT JOIN prism_staged_files f
    ON f.prism_rewrite_id = :rebuild AND f.prism_staging_object_id = s.prism_staging_object_id
ORDER BY s.prism_small_object_id
"""


def forget_left_out(connection: Connection, rebuild: Rebuild) -> None:
    """Deletes the staged files of objects that stay unchanged. Call it before the commit, which takes all others.

    The caller holds the row of the rewrite.
    """
    connection.execute(text(_FORGET_LEFT_OUT), {"rebuild": rebuild.rewrite_id})


_FORGET_LEFT_OUT = """
DELETE FROM prism_staged_files f USING prism_rebuilt_objects r
WHERE r.prism_rewrite_id = :rebuild AND r.left_out AND f.prism_rewrite_id = r.prism_rewrite_id
    AND f.prism_staging_object_id = r.prism_staging_object_id
"""


def forget_changed(connection: Connection, rebuild: Rebuild) -> int:
    """Deletes converted objects that changed since they were read, and all staged ranges. Returns how many.

    Another rebuild may have changed their rows of other days, or a repair replaced their small objects. Locks all
    converted staging objects in the order of their keys, like their registration, so they stay unchanged until the
    transaction ends.
    """
    values = {"rebuild": rebuild.rewrite_id}
    connection.execute(text(_LOCK_CONVERTED), values)
    changed = connection.execute(text(_FORGET_CHANGED), values).rowcount
    if changed:
        connection.execute(text(_FORGET_FILES), values)
    return changed


_LOCK_CONVERTED = """
SELECT 1 FROM prism_staging_objects WHERE prism_staging_object_id IN (
    SELECT prism_staging_object_id FROM prism_rebuilt_objects WHERE prism_rewrite_id = :rebuild)
ORDER BY object_key FOR NO KEY UPDATE
"""
_FORGET_CHANGED = """
DELETE FROM prism_rebuilt_objects r USING prism_staging_objects o
WHERE r.prism_rewrite_id = :rebuild AND o.prism_staging_object_id = r.prism_staging_object_id
    AND (o.rebuilds <> r.seen_rebuilds OR o.state <> 'done' OR EXISTS (SELECT 1
        FROM prism_staged_files f JOIN prism_small_objects s USING (prism_staging_object_id, prism_partition_id)
        WHERE f.prism_rewrite_id = r.prism_rewrite_id AND f.prism_staging_object_id = r.prism_staging_object_id
            AND s.rewrite_id <> f.replaces))
"""
_FORGET_FILES = """
DELETE FROM prism_staged_files f
WHERE f.prism_rewrite_id = :rebuild AND NOT EXISTS (SELECT 1 FROM prism_rebuilt_objects r
    WHERE r.prism_rewrite_id = :rebuild AND r.prism_staging_object_id = f.prism_staging_object_id)
"""


@dataclass(frozen=True, kw_only=True)
class DayTotals:
    """Totals of rows of a day, and of lines of the staging objects converted for it."""

    objects: int
    rows: int
    quarantined: int
    filtered: int
    elsewhere: int


def load_totals(connection: Connection, rebuild: Rebuild) -> DayTotals:
    """Returns the current rows and lines of the day and of the converted staging objects."""
    return DayTotals(**connection.execute(text(_TOTALS), _values(rebuild)).one()._mapping)


def _values(rebuild: Rebuild) -> dict[str, object]:
    return {
        "rebuild": rebuild.rewrite_id,
        "partition": rebuild.partition_id,
        "version": rebuild.definition_version,
        "erasure": rebuild.erasure_id,
    }


def add_small_objects(connection: Connection, rebuild: Rebuild) -> int:
    """Adds small objects of staging objects that had no row of the day. Returns how many.

    The caller holds the row of the partition.
    """
    return connection.execute(text(_ADD_SMALL), _values(rebuild)).rowcount


def apply_rest(connection: Connection, rebuild: Rebuild) -> None:
    """Updates quarantine and ledgers. Call it after all small objects are in place.

    The caller holds the row of the partition and those of the staging objects.
    """
    for statement in (_DROP_QUARANTINE, _ADD_QUARANTINE, _APPLY_LEDGER, _RAISE_LAST_OBJECT):
        connection.execute(text(statement), _values(rebuild))


_TOTALS = """
SELECT CAST((SELECT coalesce(sum(row_count), 0) FROM prism_small_objects WHERE prism_partition_id = :partition) AS bigint) AS rows,
    count(*) AS objects, CAST(coalesce(sum(o.rows_quarantined), 0) AS bigint) AS quarantined,
    CAST(coalesce(sum(o.rows_filtered), 0) AS bigint) AS filtered,
    CAST(coalesce(sum(o.rows_elsewhere), 0) AS bigint) AS elsewhere
FROM prism_rebuilt_objects r JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE r.prism_rewrite_id = :rebuild AND NOT r.left_out
"""
# Added objects are delayed ones above all merged ranges: no reader lists their folder.
_ADD_SMALL = """
INSERT INTO prism_small_objects (prism_staging_object_id, generation, rewrite_id, prism_partition_id, delayed,
    content_length, upload_start_time, row_count, min_time, max_time, fingerprint, file_format, metrics,
    definition_version, erasure_id)
SELECT f.prism_staging_object_id, o.generation, f.rewrite_id, f.prism_partition_id, true, f.content_length,
    f.upload_start_time, f.row_count, f.min_time, f.max_time, f.fingerprint, f.file_format, f.metrics,
    f.definition_version, f.erasure_id
FROM prism_staged_files f JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE f.prism_rewrite_id = :rebuild AND f.replaces IS NULL AND f.row_count > 0
ORDER BY f.prism_staging_object_id
"""
_DROP_QUARANTINE = """
DELETE FROM prism_quarantine WHERE prism_staging_object_id IN (
    SELECT prism_staging_object_id FROM prism_rebuilt_objects WHERE prism_rewrite_id = :rebuild AND NOT left_out)
"""
_ADD_QUARANTINE = """
INSERT INTO prism_quarantine
    (prism_staging_object_id, reason, line_count, object_key, dates, erasure_id, create_time)
SELECT r.prism_staging_object_id, q.reason, q.line_count, r.quarantine_key,
    CASE WHEN q.reason = 'other_day' THEN r.other_dates END, :erasure, o.finish_time
FROM prism_rebuilt_objects r JOIN prism_staging_objects o USING (prism_staging_object_id)
CROSS JOIN LATERAL jsonb_to_recordset(r.quarantined) AS q (reason text, line_count bigint)
WHERE r.prism_rewrite_id = :rebuild AND NOT r.left_out
"""
# Rows out are counted in small objects without erased rows; the other counts come from the kernel. A constraint of the
# table compares the sum with the lines in.
_APPLY_LEDGER = """
UPDATE prism_staging_objects o SET rows_quarantined = r.rows_quarantined, rows_filtered = r.rows_filtered,
    rows_erased = r.rows_erased, rows_elsewhere = r.rows_elsewhere,
    value_errors = r.value_errors, read_version = coalesce(o.read_version, o.definition_version),
    definition_version = :version, rebuilds = o.rebuilds + 1,
    rows_out = (SELECT coalesce(sum(s.row_count), 0) FROM prism_small_objects s
        WHERE s.prism_staging_object_id = o.prism_staging_object_id)
FROM prism_rebuilt_objects r
WHERE r.prism_rewrite_id = :rebuild AND NOT r.left_out AND o.prism_staging_object_id = r.prism_staging_object_id
"""
_RAISE_LAST_OBJECT = """
UPDATE prism_partitions SET last_object_id = greatest(last_object_id,
    (SELECT coalesce(max(prism_small_object_id), 0) FROM prism_small_objects WHERE prism_partition_id = :partition))
WHERE prism_partition_id = :partition
"""
