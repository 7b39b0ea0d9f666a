"""Statements that replace objects by staged files: one for small objects, one for ranges.

The caller holds the row of the day, like everyone who replaces objects, commits small ones or publishes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.files.rewrites import Place, RangePlace, SmallObjectPlace


@dataclass(frozen=True, kw_only=True)
class StandingObject:
    """The current object of a place: the rewrite that put it there, its upper bound if it is a range, its rows."""

    rewrite_id: int
    upper_bound: int | None
    row_count: int
    fingerprint: int
    rows_erased: int
    erased_fingerprint: int
    erasure_id: int


def load_standing(
    connection: Connection, places: Mapping[int, Collection[Place]]
) -> dict[int, dict[Place, StandingObject]]:
    """Returns the current objects in places of days, by partition, without empty places. One index lookup per place."""
    small = [
        (day, item.object_id) for day, items in places.items() for item in items if isinstance(item, SmallObjectPlace)
    ]
    ranges = [
        (day, item.lower_bound) for day, items in places.items() for item in items if isinstance(item, RangePlace)
    ]
    values = {
        "days": [day for day, _ in small],
        "ids": [object_id for _, object_id in small],
        "days_of_ranges": [day for day, _ in ranges],
        "lowers": [lower for _, lower in ranges],
    }
    found: dict[int, dict[Place, StandingObject]] = {day: {} for day in places}
    for row in connection.execute(text(_STANDING), values):
        place = SmallObjectPlace(row.number) if row.upper_bound is None else RangePlace(row.number)
        found[row.partition_id][place] = StandingObject(
            rewrite_id=row.rewrite_id,
            upper_bound=row.upper_bound,
            row_count=row.row_count,
            fingerprint=row.fingerprint,
            rows_erased=row.rows_erased,
            erased_fingerprint=row.erased_fingerprint,
            erasure_id=row.erasure_id,
        )
    return found


_STANDING = """
SELECT s.prism_partition_id AS partition_id, s.prism_small_object_id AS number, CAST(NULL AS bigint) AS upper_bound,
    s.rewrite_id, s.row_count, s.fingerprint, s.rows_erased, s.erased_fingerprint, s.erasure_id
FROM unnest(CAST(:days AS bigint[]), CAST(:ids AS bigint[])) AS w (partition_id, number)
JOIN prism_small_objects s ON s.prism_small_object_id = w.number AND s.prism_partition_id = w.partition_id
UNION ALL
SELECT r.prism_partition_id, r.lower_bound, r.upper_bound, r.rewrite_id, r.row_count, r.fingerprint, r.rows_erased,
    r.erased_fingerprint, r.erasure_id
FROM unnest(CAST(:days_of_ranges AS bigint[]), CAST(:lowers AS bigint[])) AS w (partition_id, number)
JOIN prism_merge_ranges r ON r.prism_partition_id = w.partition_id AND r.lower_bound = w.number
"""


def chain_end(connection: Connection, partition_id: int) -> int:
    """Returns the upper bound of the last range of a day, 0 without ranges."""
    return int(connection.execute(text(_CHAIN_END), {"partition": partition_id}).scalar_one())


_CHAIN_END = "SELECT coalesce(max(upper_bound), 0) FROM prism_merge_ranges WHERE prism_partition_id = :partition"


def count_small_objects(connection: Connection, partition_id: int, lower_bound: int, upper_bound: int) -> int:
    """Counts the small objects of a day with lower_bound < id <= upper_bound."""
    values = {"partition": partition_id, "lower": lower_bound, "upper": upper_bound}
    return int(connection.execute(text(_COUNT_SMALL_OBJECTS), values).scalar_one())


_COUNT_SMALL_OBJECTS = """
SELECT count(*) FROM prism_small_objects
WHERE prism_partition_id = :partition AND prism_small_object_id > :lower AND prism_small_object_id <= :upper
"""


def replace(connection: Connection, rewrite_id: int) -> int:
    """Puts the staged files of a rewrite in their places. Returns how many. Locks the rows of the places.

    Skips places whose object is not the one that was read.
    """
    values = {"rewrite": rewrite_id}
    small = connection.execute(text(_REPLACE_SMALL_OBJECTS), values).rowcount
    return small + connection.execute(text(_REPLACE_RANGES), values).rowcount


_REPLACE_SMALL_OBJECTS = """
UPDATE prism_small_objects s SET rewrite_id = f.rewrite_id, content_length = f.content_length,
    upload_start_time = f.upload_start_time, row_count = f.row_count, min_time = f.min_time, max_time = f.max_time,
    fingerprint = f.fingerprint, file_format = f.file_format, metrics = f.metrics, rows_erased = f.rows_erased,
    erased_fingerprint = f.erased_fingerprint, erasure_id = f.erasure_id, definition_version = f.definition_version
FROM prism_staged_files f
WHERE f.prism_rewrite_id = :rewrite AND s.prism_staging_object_id = f.prism_staging_object_id
    AND s.prism_partition_id = f.prism_partition_id AND s.rewrite_id = f.replaces
"""
# A new range begins where the last one ends: a foreign key keeps the chain without gaps.
_REPLACE_RANGES = """
MERGE INTO prism_merge_ranges r
USING (SELECT * FROM prism_staged_files WHERE prism_rewrite_id = :rewrite AND lower_bound IS NOT NULL) f
ON r.prism_partition_id = f.prism_partition_id AND r.lower_bound = f.lower_bound
WHEN MATCHED AND r.rewrite_id = f.replaces THEN UPDATE SET upper_bound = f.upper_bound,
    rewrite_id = f.rewrite_id, content_length = f.content_length, row_count = f.row_count, min_time = f.min_time,
    max_time = f.max_time, fingerprint = f.fingerprint, file_format = f.file_format, rows_erased = f.rows_erased,
    erased_fingerprint = f.erased_fingerprint, erasure_id = coalesce(f.erasure_id, r.erasure_id),
    definition_version = f.definition_version, metrics = f.metrics, update_time = clock_timestamp()
WHEN NOT MATCHED AND f.replaces IS NULL THEN INSERT (prism_partition_id, lower_bound, upper_bound, rewrite_id,
    content_length, row_count, min_time, max_time, fingerprint, file_format, rows_erased, erased_fingerprint,
    erasure_id, definition_version, metrics, create_time, update_time)
VALUES (f.prism_partition_id, f.lower_bound, f.upper_bound, f.rewrite_id, f.content_length, f.row_count,
    f.min_time, f.max_time, f.fingerprint, f.file_format, f.rows_erased, f.erased_fingerprint, f.erasure_id,
    f.definition_version, f.metrics, clock_timestamp(), clock_timestamp())
"""


def begin_chain(connection: Connection, partition_id: int) -> None:
    """Creates the sentinel row before the first range of a day, if it does not exist."""
    connection.execute(text(_BEGIN_CHAIN), {"partition": partition_id})


_BEGIN_CHAIN = """
INSERT INTO prism_merge_ranges
    (prism_partition_id, lower_bound, upper_bound, content_length, row_count, fingerprint, create_time, update_time)
VALUES (:partition, NULL, 0, 0, 0, 0, clock_timestamp(), clock_timestamp())
ON CONFLICT (prism_partition_id, lower_bound) DO NOTHING
"""
