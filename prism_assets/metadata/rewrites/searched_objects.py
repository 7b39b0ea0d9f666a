"""Statements on the results of erasures' searches: objects without matching rows, and objects with some after all."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.data_file import MergedRange, SmallObject


def mark_searched(
    connection: Connection,
    partition_id: int,
    erasure_id: int,
    small: Sequence[SmallObject],
    ranges: Sequence[MergedRange],
) -> None:
    """Records that searched objects hold no row of an erasure. Locks their rows.

    Objects never change under a number, so these are the objects that were read.
    """
    values = {
        "erasure": erasure_id,
        "ids": [item.object_id for item in small],
        "rewrites": [item.rewrite_id for item in small],
    }
    connection.execute(text(_CLEAN_SMALL), values)
    values = {
        "erasure": erasure_id,
        "partition": partition_id,
        "lowers": [item.lower_bound for item in ranges],
        "uppers": [item.upper_bound for item in ranges],
        "rewrites": [item.rewrite_id for item in ranges],
    }
    connection.execute(text(_CLEAN_RANGES), values)


_CLEAN_SMALL = """
UPDATE prism_small_objects s SET erasure_id = :erasure
FROM unnest(CAST(:ids AS bigint[]), CAST(:rewrites AS bigint[])) AS f (id, rewrite_id)
WHERE s.prism_small_object_id = f.id AND s.rewrite_id = f.rewrite_id AND s.erasure_id < :erasure
"""
_CLEAN_RANGES = """
UPDATE prism_merge_ranges r SET erasure_id = :erasure
FROM unnest(CAST(:lowers AS bigint[]), CAST(:uppers AS bigint[]), CAST(:rewrites AS bigint[]))
    AS f (lower, upper, rewrite_id)
WHERE r.prism_partition_id = :partition AND r.lower_bound = f.lower AND r.upper_bound = f.upper
    AND r.rewrite_id = f.rewrite_id AND r.erasure_id < :erasure
"""


def mark_unsearched(
    connection: Connection, erasure_id: int, found: Sequence[tuple[Partition, SmallObject | MergedRange]]
) -> None:
    """Records that objects, given with their partitions, may hold rows of an erasure after all. Locks their rows.

    Leaves out objects replaced since they were read.
    """
    small = sorted((file.object_id, file.rewrite_id) for _, file in found if isinstance(file, SmallObject))
    ranges = sorted(
        (partition.partition_id, file.upper_bound, file.rewrite_id)
        for partition, file in found
        if isinstance(file, MergedRange)
    )
    values = {"erasure": erasure_id, "ids": [item[0] for item in small], "rewrites": [item[1] for item in small]}
    connection.execute(text(_UNSEARCHED_SMALL), values)
    names = ("partitions", "uppers", "rewrites")
    connection.execute(
        text(_UNSEARCHED_RANGES),
        {"erasure": erasure_id, **{name: [item[place] for item in ranges] for place, name in enumerate(names)}},
    )


_UNSEARCHED_SMALL = """
UPDATE prism_small_objects SET erasure_id = :erasure - 1
WHERE prism_small_object_id IN (
    SELECT s.prism_small_object_id FROM prism_small_objects s
    JOIN unnest(CAST(:ids AS bigint[]), CAST(:rewrites AS bigint[])) AS f (id, rewrite_id)
        ON s.prism_small_object_id = f.id AND s.rewrite_id = f.rewrite_id
    WHERE s.erasure_id >= :erasure ORDER BY s.prism_small_object_id FOR UPDATE OF s)
"""
_UNSEARCHED_RANGES = """
UPDATE prism_merge_ranges SET erasure_id = :erasure - 1
WHERE prism_merge_range_id IN (
    SELECT r.prism_merge_range_id FROM prism_merge_ranges r
    JOIN unnest(CAST(:partitions AS bigint[]), CAST(:uppers AS bigint[]), CAST(:rewrites AS bigint[]))
        AS f (partition, upper, rewrite_id)
        ON r.prism_partition_id = f.partition AND r.upper_bound = f.upper AND r.rewrite_id = f.rewrite_id
    WHERE r.erasure_id >= :erasure ORDER BY r.prism_partition_id, r.upper_bound FOR UPDATE OF r)
"""
