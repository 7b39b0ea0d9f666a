"""Statements on the objects that erasures rewrote, and on those that they found to hold none of their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, text

from prism_assets.domain.files import DataFile, MergedRange, SmallObject
from prism_assets.domain.partitions import Partition
from prism_assets.metadata.column_metrics import to_jsonb


def replace_small_object(connection: Connection, before: SmallObject, after: DataFile, erasure_id: int) -> bool:
    """Records the object that a small one was rewritten to; False if it is not the one that was read any more.

    Its definition stays that under which its rows were made. The caller holds the partition's row, which publishing and
    merging take to read what there is.
    """
    values = {**_rewritten(after), "id": before.object_id, "before": before.revision, "said": before.fingerprint}
    told = {"erasure": erasure_id, "revision": _revision_of(after)}
    return bool(connection.execute(text(_REPLACE_SMALL), {**values, **told}).rowcount)


_REPLACE_SMALL = """
UPDATE prism_small_objects SET revision = :revision, content_length = :content_length, row_count = :row_count,
    fingerprint = :fingerprint, file_format = :file_format, metrics = CAST(:metrics AS jsonb),
    rows_erased = :rows_erased, erased_fingerprint = :erased_fingerprint, erasure_id = :erasure
WHERE prism_small_object_id = :id AND revision = :before AND fingerprint = :said
"""


def replace_range(
    connection: Connection,
    partition_id: int,
    before: MergedRange,
    after: DataFile,
    erasure_id: int,
    definition_version: int,
) -> bool:
    """Records the object that a merged one was rewritten to; False if its range was extended or rewritten meanwhile.

    It is left also where a merge wrote it under a later definition. The caller holds the partition's row.
    """
    values = {**_rewritten(after), "partition": partition_id, "lower": before.lower_bound, "upper": before.upper_bound}
    told = {"before": before.revision, "said": before.fingerprint, "erasure": erasure_id, "version": definition_version}
    told["revision"] = _revision_of(after)
    return bool(connection.execute(text(_REPLACE_RANGE), {**values, **told}).rowcount)


_REPLACE_RANGE = """
UPDATE prism_merge_ranges SET revision = :revision, content_length = :content_length, row_count = :row_count,
    fingerprint = :fingerprint, file_format = :file_format, metrics = CAST(:metrics AS jsonb),
    rows_erased = :rows_erased, erased_fingerprint = :erased_fingerprint, erasure_id = :erasure,
    definition_version = :version, update_time = clock_timestamp()
WHERE prism_partition_id = :partition AND lower_bound = :lower AND upper_bound = :upper AND revision = :before
    AND fingerprint = :said AND definition_version <= :version
"""


def _rewritten(after: DataFile) -> dict[str, object]:
    names = (
        "content_length", "row_count", "fingerprint", "file_format", "rows_erased", "erased_fingerprint",
    )  # fmt: skip
    return {**{name: getattr(after, name) for name in names}, "metrics": to_jsonb(after.metrics)}


def _revision_of(after: DataFile) -> int:
    """That of its key."""
    assert isinstance(after, SmallObject | MergedRange)
    return after.revision


def mark_clean(
    connection: Connection,
    partition_id: int,
    erasure_id: int,
    small: Sequence[SmallObject],
    ranges: Sequence[MergedRange],
) -> None:
    """Records of objects that were looked through that they hold no row of an erasure. Locks their rows.

    Objects never change under a revision, so they are the ones that were read.
    """
    values = {
        "erasure": erasure_id,
        "ids": [item.object_id for item in small],
        "revisions": [item.revision for item in small],
    }
    connection.execute(text(_CLEAN_SMALL), values)
    values = {
        "erasure": erasure_id,
        "partition": partition_id,
        "lowers": [item.lower_bound for item in ranges],
        "uppers": [item.upper_bound for item in ranges],
        "revisions": [item.revision for item in ranges],
    }
    connection.execute(text(_CLEAN_RANGES), values)


_CLEAN_SMALL = """
UPDATE prism_small_objects s SET erasure_id = :erasure
FROM unnest(CAST(:ids AS bigint[]), CAST(:revisions AS integer[])) AS f (id, revision)
WHERE s.prism_small_object_id = f.id AND s.revision = f.revision AND s.erasure_id < :erasure
"""
_CLEAN_RANGES = """
UPDATE prism_merge_ranges r SET erasure_id = :erasure
FROM unnest(CAST(:lowers AS bigint[]), CAST(:uppers AS bigint[]), CAST(:revisions AS integer[]))
    AS f (lower, upper, revision)
WHERE r.prism_partition_id = :partition AND r.lower_bound = f.lower AND r.upper_bound = f.upper
    AND r.revision = f.revision AND r.erasure_id < :erasure
"""


def mark_unsearched(
    connection: Connection, erasure_id: int, found: Sequence[tuple[Partition, SmallObject | MergedRange]]
) -> None:
    """Records of objects, given with their partitions, that they hold rows of an erasure after all. Locks their rows.

    Those that were replaced since they were read are left as they are.
    """
    small = sorted((file.object_id, file.revision) for _, file in found if isinstance(file, SmallObject))
    ranges = sorted(
        (partition.partition_id, file.upper_bound, file.revision)
        for partition, file in found
        if isinstance(file, MergedRange)
    )
    values = {"erasure": erasure_id, "ids": [item[0] for item in small], "revisions": [item[1] for item in small]}
    connection.execute(text(_UNSEARCHED_SMALL), values)
    names = ("partitions", "uppers", "revisions")
    connection.execute(
        text(_UNSEARCHED_RANGES),
        {"erasure": erasure_id, **{name: [item[place] for item in ranges] for place, name in enumerate(names)}},
    )


_UNSEARCHED_SMALL = """
UPDATE prism_small_objects SET erasure_id = :erasure - 1
WHERE prism_small_object_id IN (
    SELECT s.prism_small_object_id FROM prism_small_objects s
    JOIN unnest(CAST(:ids AS bigint[]), CAST(:revisions AS integer[])) AS f (id, revision)
        ON s.prism_small_object_id = f.id AND s.revision = f.revision
    WHERE s.erasure_id >= :erasure ORDER BY s.prism_small_object_id FOR UPDATE OF s)
"""
_UNSEARCHED_RANGES = """
UPDATE prism_merge_ranges SET erasure_id = :erasure - 1
WHERE prism_merge_range_id IN (
    SELECT r.prism_merge_range_id FROM prism_merge_ranges r
    JOIN unnest(CAST(:partitions AS bigint[]), CAST(:uppers AS bigint[]), CAST(:revisions AS integer[]))
        AS f (partition, upper, revision)
        ON r.prism_partition_id = f.partition AND r.upper_bound = f.upper AND r.revision = f.revision
    WHERE r.erasure_id >= :erasure ORDER BY r.prism_partition_id, r.upper_bound FOR UPDATE OF r)
"""


def last_rebuilds(connection: Connection, partition_ids: Collection[int]) -> dict[int, int]:
    """The highest number that a rebuild of partitions has, whatever became of it, or whatever else took one. No locks."""
    rows = connection.execute(text(_LAST_REBUILDS), {"ids": list(partition_ids)})
    return {row.prism_partition_id: row.generation for row in rows}


_LAST_REBUILDS = """
SELECT p.prism_partition_id, greatest(p.rebuild, (SELECT max(r.generation) FROM prism_rebuilds r
    WHERE r.prism_partition_id = p.prism_partition_id)) AS generation
FROM prism_partitions p WHERE p.prism_partition_id = ANY(:ids)
"""
