"""Statements on prism_small_objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, text

from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.files.garbage import Upload, UploadRecord
from prism_assets.domain.files.keys import TableKeys
from prism_assets.metadata.tables.column_metrics import from_jsonb, to_jsonb


def insert_small_objects(connection: Connection, objects: Sequence[tuple[int, SmallObject]]) -> dict[int, int]:
    """Inserts small objects, each given with its partition id. Returns the highest id by partition.

    The caller holds the rows of all these partitions, so ids become visible in ascending order inside a partition, and
    a merge that reads `id > upper bound` never passes over one. Ids taken before the lock could become visible later.
    Each object gets the definition version of its staging object, which is fixed while a batch holds the staging
    object.
    """
    if not objects:
        return {}
    rows = connection.execute(
        text(_INSERT),
        {
            "partitions": [partition_id for partition_id, _ in objects],
            "metrics": [to_jsonb(small.metrics) for _, small in objects],
            **{name: [getattr(small, name) for _, small in objects] for name in _STORED},
        },
    )
    highest: dict[int, int] = {}
    for row in rows:
        highest[row.prism_partition_id] = max(highest.get(row.prism_partition_id, 0), row.prism_small_object_id)
    return highest


_STORED = (
    "staging_object_id", "generation", "delayed", "content_length", "upload_start_time", "row_count", "min_time",
    "max_time", "fingerprint", "file_format", "erasure_id",
)  # fmt: skip
_INSERT = """
INSERT INTO prism_small_objects (prism_staging_object_id, generation, prism_partition_id, delayed, content_length,
    upload_start_time, row_count, min_time, max_time, fingerprint, file_format, erasure_id, metrics, definition_version)
SELECT f.*, (SELECT o.definition_version FROM prism_staging_objects o WHERE o.prism_staging_object_id = f.staging_object_id)
FROM unnest(
    CAST(:staging_object_id AS bigint[]), CAST(:generation AS integer[]), CAST(:partitions AS bigint[]),
    CAST(:delayed AS boolean[]), CAST(:content_length AS bigint[]), CAST(:upload_start_time AS timestamptz[]),
    CAST(:row_count AS bigint[]), CAST(:min_time AS timestamptz[]), CAST(:max_time AS timestamptz[]),
    CAST(:fingerprint AS bigint[]), CAST(:file_format AS smallint[]), CAST(:erasure_id AS bigint[]),
    CAST(:metrics AS jsonb[])
) AS f (staging_object_id)
RETURNING prism_partition_id, prism_small_object_id
"""


def count_unmerged_live(connection: Connection, upper_bounds: Mapping[int, int]) -> dict[int, int]:
    """Counts live small objects above the merged ranges, given as the last bound of each partition.

    Leaves out partitions without any. Reads without locks.
    """
    values = {"partitions": list(upper_bounds), "bounds": list(upper_bounds.values())}
    rows = connection.execute(text(_UNMERGED_LIVE), values)
    return {row.partition_id: row.objects for row in rows}


_UNMERGED_LIVE = """
SELECT w.partition_id, s.objects
FROM unnest(CAST(:partitions AS bigint[]), CAST(:bounds AS bigint[])) AS w (partition_id, bound)
CROSS JOIN LATERAL (
    SELECT count(*) AS objects FROM prism_small_objects
    WHERE prism_partition_id = w.partition_id AND prism_small_object_id > w.bound AND NOT delayed
) s WHERE s.objects > 0
"""


def count_above(connection: Connection, partition_id: int, lower_bound: int) -> int:
    """Counts small objects of a partition with an id above `lower_bound`. Reads without locks."""
    values = {"partition": partition_id, "lower": lower_bound}
    return int(connection.execute(text(_COUNT_ABOVE), values).scalar_one())


_COUNT_ABOVE = """
SELECT count(*) FROM prism_small_objects WHERE prism_partition_id = :partition AND prism_small_object_id > :lower
"""


@dataclass(frozen=True, kw_only=True)
class Unmerged:
    """Small objects of one partition above its last range. `oldest` is the commit time of the first."""

    table_id: int
    date: date
    objects: int
    oldest: datetime


def unmerged(connection: Connection, table_ids: Collection[int], before: date) -> list[Unmerged]:
    """Returns unmerged small objects of partitions of days before `before`, by table and date. Reads without locks."""
    rows = connection.execute(text(_UNMERGED), {"tables": list(table_ids), "before": before})
    return [Unmerged(**row._mapping) for row in rows]


# The count reads only an index. The commit time of the first object needs its row, so it is a query of its own.
_UNMERGED = """
SELECT p.prism_table_id AS table_id, p.partition_date AS date, s.objects, f.oldest FROM prism_partitions p
CROSS JOIN LATERAL (
    SELECT count(*) AS objects FROM prism_small_objects
    WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > p.desired_manifest_version
) s
CROSS JOIN LATERAL (
    SELECT commit_time AS oldest FROM prism_small_objects
    WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > p.desired_manifest_version
    ORDER BY prism_small_object_id LIMIT 1
) f
WHERE p.prism_table_id = ANY(:tables) AND p.partition_date < :before
    AND p.last_object_id > p.desired_manifest_version
ORDER BY p.prism_table_id, p.partition_date
"""


def first_commits(connection: Connection, partition_ids: Collection[int]) -> dict[int, datetime]:
    """Returns the commit time of the first small object of each partition, by partition id. Reads without locks.

    Takes one index lookup per partition.
    """
    rows = connection.execute(text(_FIRST_COMMITS), {"ids": list(partition_ids)})
    return {row.id: row.commit_time for row in rows}


_FIRST_COMMITS = """
SELECT w.id, s.commit_time FROM unnest(CAST(:ids AS bigint[])) AS w (id)
CROSS JOIN LATERAL (
    SELECT commit_time FROM prism_small_objects
    WHERE prism_partition_id = w.id
    ORDER BY prism_small_object_id LIMIT 1
) s
"""


def load_above(
    connection: Connection,
    keys: TableKeys,
    partition_id: int,
    lower_bound: int,
    limit: int | None = None,
    *,
    before_erasure: int | None = None,
) -> list[SmallObject]:
    """Returns the committed small objects of a partition with id > lower_bound, by id. Reads without locks.

    `before_erasure` leaves out objects known to hold no row of this erasure.
    """
    values = {"partition": partition_id, "lower": lower_bound, "limit": limit, "erasure": before_erasure}
    rows = connection.execute(text(_ABOVE), values)
    return [small_object_of(dict(row._mapping), keys) for row in rows]


SMALL_OBJECTS = """
SELECT s.prism_small_object_id AS object_id, s.prism_staging_object_id AS staging_object_id, s.generation,
    p.partition_date AS date,
    s.delayed, s.content_length, s.upload_start_time, s.row_count, s.min_time, s.max_time, s.fingerprint,
    s.file_format, s.metrics, s.definition_version, s.rewrite_id, s.rows_erased, s.erased_fingerprint, s.erasure_id
FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id)
"""
_ABOVE = f"""
{SMALL_OBJECTS}
WHERE s.prism_partition_id = :partition AND s.prism_small_object_id > :lower
    AND (CAST(:erasure AS bigint) IS NULL OR s.erasure_id < :erasure)
ORDER BY s.prism_small_object_id LIMIT :limit
"""


def load_days_above(
    connection: Connection, keys: TableKeys, lower_bounds: Mapping[int, int]
) -> dict[date, list[SmallObject]]:
    """Returns the committed small objects of partitions of a table above a bound of each, by date and id.

    Reads without locks.
    """
    found: dict[date, list[SmallObject]] = {}
    values = {"partitions": list(lower_bounds), "bounds": list(lower_bounds.values())}
    for row in connection.execute(text(_DAYS_ABOVE), values):
        found.setdefault(row.date, []).append(small_object_of(dict(row._mapping), keys))
    return found


# OFFSET 0 keeps the lookup by index a part of its own, whatever the statistics say.
_DAYS_ABOVE = f"""
SELECT a.* FROM unnest(CAST(:partitions AS bigint[]), CAST(:bounds AS bigint[])) AS w (partition_id, bound)
CROSS JOIN LATERAL (
    {SMALL_OBJECTS} WHERE s.prism_partition_id = w.partition_id AND s.prism_small_object_id > w.bound OFFSET 0
) a ORDER BY a.date, a.object_id
"""


def load_these(connection: Connection, keys: TableKeys, object_ids: Collection[int]) -> list[SmallObject]:
    """Returns the small objects of a table with these ids, by id. Reads without locks."""
    rows = connection.execute(text(_THESE), {"ids": list(object_ids)})
    return [small_object_of(dict(row._mapping), keys) for row in rows]


_THESE = f"""
{SMALL_OBJECTS}
WHERE s.prism_small_object_id = ANY(:ids)
ORDER BY s.prism_small_object_id
"""


def small_object_of(row: Mapping[str, Any], keys: TableKeys) -> SmallObject:
    """Builds a small object, with its key, from a row."""
    key = keys.small_object(
        row["date"],
        row["staging_object_id"],
        delayed=row["delayed"],
        generation=row["generation"],
        rewrite_id=row.get("rewrite_id", 0),
    )
    return SmallObject(bucket=keys.bucket, key=key, **{**row, "metrics": from_jsonb(row["metrics"])})


def trace_uploads(connection: Connection, table_id: int, uploads: Collection[Upload]) -> dict[Upload, UploadRecord]:
    """Returns the records of uploads, in one snapshot. Call it after the listing that found them. Reads without locks.

    An upload that is over, or foreign to the table, stays so for ever: its staging object has restarted, is done or was
    given up, and its small objects were committed in the same transaction.
    """
    ordered = sorted(uploads, key=lambda item: (item.date, item.staging_object_id, item.generation))
    rows = connection.execute(
        text(_TRACE),
        {
            "table": table_id,
            "dates": [item.date for item in ordered],
            "ids": [item.staging_object_id for item in ordered],
            "generations": [item.generation for item in ordered],
        },
    )
    return {
        Upload(row.date, row.id, row.generation): UploadRecord(
            object_id=row.object_id,
            delayed=row.delayed,
            rewrite_id=row.rewrite_id or 0,
            is_over=row.is_over,
            is_foreign=row.is_foreign,
        )
        for row in rows
    }


_TRACE = """
SELECT f.date, f.id, f.generation, s.prism_small_object_id AS object_id, s.delayed, s.rewrite_id,
    coalesce(o.generation > f.generation OR (o.generation = f.generation AND o.state IN ('done', 'failed')), false)
        AS is_over,
    o.prism_staging_object_id IS NULL AS is_foreign
FROM unnest(CAST(:dates AS date[]), CAST(:ids AS bigint[]), CAST(:generations AS integer[]))
    AS f (date, id, generation)
LEFT JOIN prism_staging_objects o ON o.prism_staging_object_id = f.id AND o.prism_table_id = :table
LEFT JOIN prism_partitions p ON p.prism_table_id = :table AND p.partition_date = f.date
LEFT JOIN prism_small_objects s ON s.prism_staging_object_id = f.id
    AND s.prism_partition_id = p.prism_partition_id AND s.generation = f.generation
"""


def set_length(connection: Connection, before: SmallObject, length: int) -> bool:
    """Records the length in bytes of an object that a repair wrote under its key, in the live prefix.

    Returns False if the row no longer describes the object `before`: the day may have closed meanwhile, and a rewrite
    may have replaced the object, perhaps by one of the same length. The caller holds the partition's row; publications
    take the same lock to read lengths.
    """
    values = {
        "id": before.object_id,
        "generation": before.generation,
        "rewrite": before.rewrite_id,
        "before": before.content_length,
        "after": length,
    }
    return bool(connection.execute(text(_SET_LENGTH), values).rowcount)


_SET_LENGTH = """
UPDATE prism_small_objects SET content_length = :after
WHERE prism_small_object_id = :id AND generation = :generation AND rewrite_id = :rewrite AND content_length = :before
"""
