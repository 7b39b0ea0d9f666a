"""Statements that put objects in the place of others: one for small objects, one for ranges.

The flip of a widened column exchanges ranges for their copies by a statement of its own (`range_copies.py`).

The caller holds the row of the day, which all do that replace objects, commit small ones or publish.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.files.data_file import MergedRange, SmallObject
from prism_assets.domain.files.rewrites import Place, RangePlace, Replacement, SmallObjectPlace
from prism_assets.metadata.tables.column_metrics import to_jsonb

_AT_ONCE = 5_000
"""Small objects of one statement: PostgreSQL ends a session that prepares more of them for too long."""


@dataclass(frozen=True, kw_only=True)
class StandingObject:
    """An object that stands in a place now: the rewrite that put it there, its upper bound if it is a range, its rows."""

    rewrite_id: int
    upper_bound: int | None
    row_count: int
    fingerprint: int
    rows_erased: int
    erased_fingerprint: int
    erasure_id: int


def load_standing(connection: Connection, partition_id: int, places: Collection[Place]) -> dict[Place, StandingObject]:
    """What stands in some places of a day; empty ones are left out."""
    ids = [place.object_id for place in places if isinstance(place, SmallObjectPlace)]
    lowers = [place.lower_bound for place in places if isinstance(place, RangePlace)]
    rows = connection.execute(text(_STANDING), {"partition": partition_id, "ids": ids, "lowers": lowers})
    return {
        SmallObjectPlace(row.number) if row.upper_bound is None else RangePlace(row.number): StandingObject(
            rewrite_id=row.rewrite_id,
            upper_bound=row.upper_bound,
            row_count=row.row_count,
            fingerprint=row.fingerprint,
            rows_erased=row.rows_erased,
            erased_fingerprint=row.erased_fingerprint,
            erasure_id=row.erasure_id,
        )
        for row in rows
    }


_STANDING = """
SELECT prism_small_object_id AS number, CAST(NULL AS bigint) AS upper_bound, rewrite_id, row_count, fingerprint,
    rows_erased, erased_fingerprint, erasure_id
FROM prism_small_objects WHERE prism_partition_id = :partition AND prism_small_object_id = ANY(:ids)
UNION ALL
SELECT lower_bound, upper_bound, rewrite_id, row_count, fingerprint, rows_erased, erased_fingerprint, erasure_id
FROM prism_merge_ranges WHERE prism_partition_id = :partition AND lower_bound = ANY(:lowers)
"""


def chain_end(connection: Connection, partition_id: int) -> int:
    """The upper bound of the last range of a day; 0 where nothing is merged."""
    return int(connection.execute(text(_CHAIN_END), {"partition": partition_id}).scalar_one())


_CHAIN_END = "SELECT coalesce(max(upper_bound), 0) FROM prism_merge_ranges WHERE prism_partition_id = :partition"


def count_small_objects(connection: Connection, partition_id: int, lower_bound: int, upper_bound: int) -> int:
    """How many small objects of a day have lower_bound < id <= upper_bound."""
    values = {"partition": partition_id, "lower": lower_bound, "upper": upper_bound}
    return int(connection.execute(text(_COUNT_SMALL_OBJECTS), values).scalar_one())


_COUNT_SMALL_OBJECTS = """
SELECT count(*) FROM prism_small_objects
WHERE prism_partition_id = :partition AND prism_small_object_id > :lower AND prism_small_object_id <= :upper
"""


def replace(connection: Connection, partition_id: int, chosen: Sequence[Replacement]) -> int:
    """Puts objects in their places; returns how many. Places that do not hold what was read there are left.

    Locks the rows of the places.
    """
    small = [item for item in chosen if isinstance(item.file, SmallObject)]
    ranges = [item for item in chosen if isinstance(item.file, MergedRange)]
    done = 0
    for start in range(0, len(small), _AT_ONCE):
        part = small[start : start + _AT_ONCE]
        values = {**_arrays(part, "object_id", "upload_start_time"), "partition": partition_id}
        done += connection.execute(text(_REPLACE_SMALL_OBJECTS), values).rowcount
    if ranges:
        values = {**_arrays(ranges, "lower_bound", "upper_bound"), "partition": partition_id}
        done += connection.execute(text(_REPLACE_RANGES), values).rowcount
    return done


_OF_FILES = (
    "rewrite_id", "content_length", "row_count", "min_time", "max_time", "fingerprint", "file_format", "rows_erased",
    "erased_fingerprint", "erasure_id", "definition_version",
)  # fmt: skip


def _arrays(chosen: Sequence[Replacement], *own: str) -> dict[str, object]:
    return {
        **{name: [getattr(item.file, name) for item in chosen] for name in (*_OF_FILES, *own)},
        "metrics": [to_jsonb(item.file.metrics) for item in chosen],
        "replaces": [item.replaces.rewrite_id if item.replaces else None for item in chosen],
    }


_FILES = """
    CAST(:replaces AS bigint[]), CAST(:rewrite_id AS bigint[]), CAST(:content_length AS bigint[]),
    CAST(:row_count AS bigint[]), CAST(:min_time AS timestamptz[]), CAST(:max_time AS timestamptz[]),
    CAST(:fingerprint AS bigint[]), CAST(:file_format AS smallint[]), CAST(:rows_erased AS bigint[]),
    CAST(:erased_fingerprint AS bigint[]), CAST(:erasure_id AS bigint[]), CAST(:definition_version AS integer[]),
    CAST(:metrics AS jsonb[])
"""
_NAMES = """
    replaces, rewrite_id, content_length, row_count, min_time, max_time, fingerprint, file_format, rows_erased,
    erased_fingerprint, erasure_id, definition_version, metrics
"""
_REPLACE_SMALL_OBJECTS = f"""
UPDATE prism_small_objects s SET rewrite_id = f.rewrite_id, content_length = f.content_length,
    upload_start_time = f.upload_start_time, row_count = f.row_count, min_time = f.min_time, max_time = f.max_time,
    fingerprint = f.fingerprint, file_format = f.file_format, metrics = f.metrics, rows_erased = f.rows_erased,
    erased_fingerprint = f.erased_fingerprint, erasure_id = f.erasure_id, definition_version = f.definition_version
FROM unnest(CAST(:object_id AS bigint[]), CAST(:upload_start_time AS timestamptz[]), {_FILES})
    AS f (object_id, upload_start_time, {_NAMES})
WHERE s.prism_partition_id = :partition AND s.prism_small_object_id = f.object_id AND s.rewrite_id = f.replaces
"""
# A new range begins where the last one ends: a foreign key keeps the chain without gaps.
_REPLACE_RANGES = f"""
INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, rewrite_id, content_length, row_count,
    min_time, max_time, fingerprint, file_format, rows_erased, erased_fingerprint, erasure_id, definition_version, metrics,
    create_time, update_time)
SELECT :partition, f.lower_bound, f.upper_bound, f.rewrite_id, f.content_length, f.row_count, f.min_time, f.max_time,
    f.fingerprint, f.file_format, f.rows_erased, f.erased_fingerprint, f.erasure_id, f.definition_version, f.metrics,
    clock_timestamp(), clock_timestamp()
FROM unnest(CAST(:lower_bound AS bigint[]), CAST(:upper_bound AS bigint[]), {_FILES})
    AS f (lower_bound, upper_bound, {_NAMES})
WHERE f.replaces IS NOT DISTINCT FROM (SELECT r.rewrite_id FROM prism_merge_ranges r
    WHERE r.prism_partition_id = :partition AND r.lower_bound = f.lower_bound)
ORDER BY f.upper_bound
ON CONFLICT (prism_partition_id, lower_bound) DO UPDATE SET upper_bound = EXCLUDED.upper_bound,
    rewrite_id = EXCLUDED.rewrite_id, content_length = EXCLUDED.content_length, row_count = EXCLUDED.row_count,
    min_time = EXCLUDED.min_time, max_time = EXCLUDED.max_time, fingerprint = EXCLUDED.fingerprint,
    file_format = EXCLUDED.file_format, rows_erased = EXCLUDED.rows_erased,
    erased_fingerprint = EXCLUDED.erased_fingerprint, erasure_id = EXCLUDED.erasure_id,
    definition_version = EXCLUDED.definition_version, metrics = EXCLUDED.metrics, update_time = EXCLUDED.update_time
"""


def begin_chain(connection: Connection, partition_id: int) -> None:
    """Makes the row that the first range of a day begins at, if there is none."""
    connection.execute(text(_BEGIN_CHAIN), {"partition": partition_id})


_BEGIN_CHAIN = """
INSERT INTO prism_merge_ranges
    (prism_partition_id, lower_bound, upper_bound, content_length, row_count, fingerprint, create_time, update_time)
VALUES (:partition, NULL, 0, 0, 0, 0, clock_timestamp(), clock_timestamp())
ON CONFLICT (prism_partition_id, lower_bound) DO NOTHING
"""
