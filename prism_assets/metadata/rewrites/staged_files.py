"""Statements on prism_staged_files: finished files that nobody reads before they take their places."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, text

from prism_assets.domain.files.data_file import MergedRange, SmallObject
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.files.rewrites import Input, Place, RangePlace, Replacement, RewriteKind, TableRewrite
from prism_assets.metadata.files import merge_ranges
from prism_assets.metadata.files.small_objects import small_object_of
from prism_assets.metadata.tables.column_metrics import to_jsonb

_AT_ONCE = 5_000
"""Files per statement. PostgreSQL would end a session that prepares more of them for too long."""


def add(
    connection: Connection,
    rewrite: TableRewrite,
    partition_id: int,
    files: Sequence[tuple[SmallObject | MergedRange, int | None]],
) -> None:
    """Stages files of a day, each with the rewrite of the file it replaces; None for an empty place.

    A copy of a widening is staged without an erasure: it has the rows of its range. Erasures search the range, and the
    commit takes the erasure of the range over. The caller holds the row of the rewrite, or that of the day.
    """
    for start in range(0, len(files), _AT_ONCE):
        part = files[start : start + _AT_ONCE]
        keeps_erasure = rewrite.kind is RewriteKind.WIDEN
        values = {
            "rewrite": rewrite.rewrite_id,
            "partition": partition_id,
            "replaces": [replaces for _, replaces in part],
            "metrics": [to_jsonb(file.metrics) for file, _ in part],
            "erasure_id": [None if keeps_erasure else file.erasure_id for file, _ in part],
        }
        facts = {name: [getattr(file, name, None) for file, _ in part] for name in _STORED}
        connection.execute(text(_ADD), {**values, **facts})


_STORED = (
    "staging_object_id", "lower_bound", "upper_bound", "rewrite_id", "content_length", "upload_start_time", "row_count",
    "min_time", "max_time", "fingerprint", "file_format", "definition_version", "rows_erased", "erased_fingerprint",
)  # fmt: skip
_ADD = f"""
INSERT INTO prism_staged_files
    (prism_rewrite_id, prism_partition_id, replaces, metrics, erasure_id, prism_{", ".join(_STORED)})
SELECT :rewrite, :partition, f.* FROM unnest(
    CAST(:replaces AS bigint[]), CAST(:metrics AS jsonb[]), CAST(:erasure_id AS bigint[]),
    CAST(:staging_object_id AS bigint[]), CAST(:lower_bound AS bigint[]), CAST(:upper_bound AS bigint[]),
    CAST(:rewrite_id AS bigint[]), CAST(:content_length AS bigint[]), CAST(:upload_start_time AS timestamptz[]),
    CAST(:row_count AS bigint[]), CAST(:min_time AS timestamptz[]), CAST(:max_time AS timestamptz[]),
    CAST(:fingerprint AS bigint[]), CAST(:file_format AS smallint[]), CAST(:definition_version AS integer[]),
    CAST(:rows_erased AS bigint[]), CAST(:erased_fingerprint AS bigint[])
) AS f
"""


def add_range(connection: Connection, rewrite: TableRewrite, partition_id: int, item: Replacement) -> None:
    """Stages the object of a range, in place of any object staged by the same rewrite for this range."""
    forget_ranges(connection, rewrite.rewrite_id, [(partition_id, item.place)])
    add(connection, rewrite, partition_id, [(item.file, item.replaced_id)])


def forget_ranges(connection: Connection, rewrite_id: int, places: Collection[tuple[int, Place]]) -> None:
    """Deletes staged objects of ranges, so that they are made again. Each is given by partition and place.

    Locks their rows.
    """
    values = [
        {"rewrite": rewrite_id, "partition": partition_id, "lower": place.lower_bound}
        for partition_id, place in places
        if isinstance(place, RangePlace)
    ]
    if values:
        connection.execute(text(_FORGET_RANGE), values)


_FORGET_RANGE = """
DELETE FROM prism_staged_files
WHERE prism_partition_id = :partition AND lower_bound = :lower AND prism_rewrite_id = :rewrite
"""


def load_replacements(connection: Connection, keys: TableKeys, rewrite: TableRewrite) -> dict[int, list[Replacement]]:
    """Returns the staged files whose places still hold the object that was read, by partition: small objects, and
    ranges in order.

    Leaves out files for new small objects, and all metrics, because a commit needs neither. Reads without locks.
    """
    found: dict[int, list[Replacement]] = {}
    for statement, file_of in ((_SMALL_OBJECTS, small_object_of), (_RANGES, merge_ranges.range_of)):
        for row in connection.execute(text(statement), {"rewrite": rewrite.rewrite_id}):
            fields = dict(row._mapping)
            partition_id, replaces = fields.pop("partition_id"), fields.pop("replaces")
            file = file_of(fields, keys)
            read = Input(place=Input.of(file).place, rewrite_id=replaces)
            item = Replacement(place=read.place, replaces=read, file=file, inputs=(read,))
            found.setdefault(partition_id, []).append(item)
    return found


_FACTS = """
    f.prism_partition_id AS partition_id, f.replaces, f.rewrite_id, p.partition_date AS date, f.content_length,
    f.row_count, f.min_time, f.max_time, f.fingerprint, f.file_format, CAST(NULL AS jsonb) AS metrics,
    f.definition_version, f.rows_erased, f.erased_fingerprint
"""
_SMALL_OBJECTS = f"""
SELECT {_FACTS}, s.prism_small_object_id AS object_id, s.prism_staging_object_id AS staging_object_id, s.generation,
    s.delayed, f.upload_start_time, f.erasure_id
FROM prism_staged_files f JOIN prism_partitions p USING (prism_partition_id)
JOIN prism_small_objects s ON s.prism_staging_object_id = f.prism_staging_object_id
    AND s.prism_partition_id = f.prism_partition_id AND s.rewrite_id = f.replaces
WHERE f.prism_rewrite_id = :rewrite
ORDER BY s.prism_small_object_id
"""
_RANGES = f"""
SELECT {_FACTS}, f.lower_bound, f.upper_bound, coalesce(f.erasure_id, r.erasure_id) AS erasure_id
FROM prism_staged_files f JOIN prism_partitions p USING (prism_partition_id)
JOIN prism_merge_ranges r ON r.prism_partition_id = f.prism_partition_id AND r.lower_bound = f.lower_bound
    AND r.upper_bound = f.upper_bound AND r.rewrite_id = f.replaces
WHERE f.prism_rewrite_id = :rewrite
ORDER BY f.prism_partition_id, f.upper_bound
"""


def load_ranges(connection: Connection, partition_ids: Collection[int]) -> dict[int, set[tuple[int, int, int]]]:
    """Returns the staged files that may still replace a range, by partition: bounds, and the rewrite in the key.

    Garbage collection keeps these. Reads without locks.
    """
    found: dict[int, set[tuple[int, int, int]]] = {}
    for row in connection.execute(text(_OF_DAYS), {"ids": list(partition_ids)}):
        found.setdefault(row.prism_partition_id, set()).add((row.lower_bound, row.upper_bound, row.rewrite_id))
    return found


_OF_DAYS = """
SELECT f.prism_partition_id, f.lower_bound, f.upper_bound, f.rewrite_id FROM prism_staged_files f
JOIN prism_merge_ranges r ON r.prism_partition_id = f.prism_partition_id AND r.lower_bound = f.lower_bound
    AND r.upper_bound = f.upper_bound AND r.rewrite_id = f.replaces
WHERE f.prism_partition_id = ANY(:ids)
"""


def forget(connection: Connection, rewrite_id: int) -> None:
    """Deletes the remaining staged files of a finished rewrite. The caller holds the row of the rewrite."""
    connection.execute(text(_FORGET), {"rewrite": rewrite_id})


_FORGET = "DELETE FROM prism_staged_files WHERE prism_rewrite_id = :rewrite"
