"""Statements on prism_range_copies: copies of merged objects with wider types of columns, which nobody is sent to.

A copy counts as long as the object that it was made of stands in its range, and was made under a definition with all
wider types. When all ranges of a table have one, copies take their place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.files.data_file import MergedRange
from prism_assets.domain.files.keys import TableKeys
from prism_assets.metadata.tables.column_metrics import to_jsonb

_COUNTS = """
    c.prism_partition_id = r.prism_partition_id AND c.upper_bound = r.upper_bound AND c.lower_bound = r.lower_bound
        AND c.copied_rewrite_id = r.rewrite_id AND c.definition_version >= :copies_since
"""
COPIED = f"SELECT 1 FROM prism_range_copies c WHERE {_COUNTS}"
"""Whether the range `r` of prism_merge_ranges has a copy that counts."""


def find_uncopied(
    connection: Connection, partition_id: int, chain: Collection[MergedRange], copies_since: int
) -> list[MergedRange]:
    """The ranges of a partition without a copy of definitions from a version on. Reads without locks."""
    values = {"partition": partition_id, "copies_since": copies_since}
    missing = set(connection.execute(text(_UNCOPIED), values).scalars())
    return [item for item in chain if item.upper_bound in missing]


_UNCOPIED = f"""
SELECT r.upper_bound FROM prism_merge_ranges r
WHERE r.prism_partition_id = :partition AND r.lower_bound IS NOT NULL AND NOT EXISTS ({COPIED})
"""


def save_copy(
    connection: Connection,
    partition_id: int,
    copied: MergedRange,
    written: MergedRange,
    *,
    definition_version: int,
) -> bool:
    """Records the copy of a range; False if the range was extended or rewritten since it was read.

    The caller holds the partition's row, as whoever changes a range does.
    """
    values = {**dataclasses.asdict(written), "metrics": to_jsonb(written.metrics)}
    told = {"id": partition_id, "copied": copied.rewrite_id, "version": definition_version}
    return bool(connection.execute(text(_SAVE), {**values, **told}).rowcount)


_SAVE = """
INSERT INTO prism_range_copies (prism_partition_id, upper_bound, lower_bound, copied_rewrite_id, rewrite_id, content_length,
    file_format, metrics, definition_version, create_time)
SELECT prism_partition_id, upper_bound, lower_bound, rewrite_id, :rewrite_id, :content_length, :file_format,
    CAST(:metrics AS jsonb), :version, clock_timestamp()
FROM prism_merge_ranges
WHERE prism_partition_id = :id AND lower_bound = :lower_bound AND upper_bound = :upper_bound AND rewrite_id = :copied
    AND row_count = :row_count AND fingerprint = :fingerprint
ON CONFLICT (prism_partition_id, upper_bound) DO UPDATE SET lower_bound = EXCLUDED.lower_bound,
    copied_rewrite_id = EXCLUDED.copied_rewrite_id, rewrite_id = EXCLUDED.rewrite_id, content_length = EXCLUDED.content_length,
    file_format = EXCLUDED.file_format, metrics = EXCLUDED.metrics, definition_version = EXCLUDED.definition_version,
    create_time = EXCLUDED.create_time
"""


@dataclass(frozen=True, kw_only=True)
class RangeCopy:
    """A copy on record: its range, by partition and upper bound, and the object."""

    partition_id: int
    upper_bound: int
    key: str
    content_length: int


def load_copies(connection: Connection, keys: TableKeys, table_id: int, copies_since: int) -> list[RangeCopy]:
    """The copies of a table that count. Reads without locks."""
    rows = connection.execute(text(_COPIES), {"table": table_id, "copies_since": copies_since})
    return [
        RangeCopy(
            partition_id=row.prism_partition_id,
            upper_bound=row.upper_bound,
            key=keys.merged_object(row.partition_date, row.lower_bound, row.upper_bound, row.rewrite_id),
            content_length=row.content_length,
        )
        for row in rows
    ]


_COPIES = f"""
SELECT c.prism_partition_id, p.partition_date, c.lower_bound, c.upper_bound, c.rewrite_id, c.content_length
FROM prism_partitions p JOIN prism_range_copies c USING (prism_partition_id) JOIN prism_merge_ranges r ON {_COUNTS}
WHERE p.prism_table_id = :table AND p.expire_time IS NULL
ORDER BY c.prism_partition_id, c.upper_bound
"""


def forget_copies(connection: Connection, damaged: Collection[RangeCopy]) -> None:
    """Has copies be made again. Locks their rows."""
    values = [{"partition": item.partition_id, "upper": item.upper_bound} for item in damaged]
    if values:
        connection.execute(text(_FORGET), values)


_FORGET = "DELETE FROM prism_range_copies WHERE prism_partition_id = :partition AND upper_bound = :upper"


def flip_to_copies(connection: Connection, table_id: int, copies_since: int) -> None:
    """Has the copies of a table take the place of its ranges, and marks the days to be published.

    What is known of the rows, such as which erasures they were searched for, stays that of the range. The caller holds
    the rows of all partitions of the table, and ends copying behind it.
    """
    values = {"table": table_id, "copies_since": copies_since}
    connection.execute(text(_PUT_IN_PLACE), values)
    connection.execute(text(_RAISE_REVISIONS), values)


_PUT_IN_PLACE = f"""
UPDATE prism_merge_ranges r SET rewrite_id = c.rewrite_id, content_length = c.content_length, file_format = c.file_format,
    metrics = c.metrics, definition_version = c.definition_version, update_time = clock_timestamp()
FROM prism_partitions p, prism_range_copies c
WHERE p.prism_table_id = :table AND p.expire_time IS NULL AND r.prism_partition_id = p.prism_partition_id AND {_COUNTS}
"""
_RAISE_REVISIONS = """
UPDATE prism_partitions p SET revision = revision + 1
WHERE p.prism_table_id = :table AND p.expire_time IS NULL AND EXISTS (SELECT 1 FROM prism_range_copies c
    WHERE c.prism_partition_id = p.prism_partition_id)
"""


def end_copying(connection: Connection, table_ids: Collection[int]) -> None:
    """Ends copying: copies that are in place by now stay, and the others are garbage.

    The caller holds the rows of all partitions of the tables.
    """
    connection.execute(text(_FORGET_ALL), {"tables": list(table_ids)})


_FORGET_ALL = """
DELETE FROM prism_range_copies c USING prism_partitions p
WHERE p.prism_partition_id = c.prism_partition_id AND p.prism_table_id = ANY(:tables)
"""


def load_staged(connection: Connection, partition_ids: Collection[int]) -> dict[int, set[tuple[int, int, int]]]:
    """The copies that may still take the place of their ranges, by partition id: bounds and rewrite. Without locks."""
    found: dict[int, set[tuple[int, int, int]]] = {}
    for row in connection.execute(text(_STAGED), {"ids": list(partition_ids)}):
        found.setdefault(row.prism_partition_id, set()).add((row.lower_bound, row.upper_bound, row.rewrite_id))
    return found


_STAGED = """
SELECT c.prism_partition_id, c.lower_bound, c.upper_bound, c.rewrite_id FROM prism_range_copies c
JOIN prism_merge_ranges r ON r.prism_partition_id = c.prism_partition_id AND r.upper_bound = c.upper_bound
    AND r.lower_bound = c.lower_bound AND r.rewrite_id = c.copied_rewrite_id
WHERE c.prism_partition_id = ANY(:ids)
"""
