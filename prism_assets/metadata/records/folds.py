"""Statements on folds of join tables, and on prism_fold_positions: the changes taken by folds.

Only the holder of its lease folds a table. A fold is a rewrite (`rewrites.py`), like merges, erasures and rebuilds of
records: all raise the versions of days by numbers in one order. A fold takes all of a day's log of changes up to one
small object, because ids inside a day become visible in ascending order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files.data_file import DataFile


@dataclass(frozen=True, kw_only=True)
class FoldCounts:
    """Counts of a fold: new changes, folded changes, and written records, rows and bytes."""

    changes_in: int = 0
    changes_folded: int = 0
    changes_unsequenced: int = 0
    records_settled: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    records_changed: int = 0
    records_joined: int = 0
    """Settled records with all groups."""
    bucket_changes: tuple[int, ...] = ()
    """New changes per bucket."""

    @classmethod
    def of(cls, written: Sequence[DataFile], *, changes_folded: int = 0) -> FoldCounts:
        """Returns the counts of written objects, with the number of changes they fold."""
        return cls(
            changes_folded=changes_folded,
            rows_written=sum(item.row_count for item in written),
            bytes_written=sum(item.content_length for item in written),
        )


@dataclass(frozen=True, kw_only=True)
class UnfoldedDay:
    """A day of a log of changes with small objects above `folded_object_id` not taken by any fold."""

    partition_id: int
    folded_object_id: int
    last_object_id: int


def last_finished(connection: Connection, table_ids: Collection[int]) -> dict[int, datetime]:
    """Returns the time of each table's last fold. Leaves out tables never folded. Reads without locks."""
    rows = connection.execute(text(_LAST), {"ids": list(table_ids)})
    return {row.id: row.finish_time for row in rows}


_LAST = """
SELECT w.id, f.finish_time FROM unnest(CAST(:ids AS bigint[])) AS w (id)
CROSS JOIN LATERAL (
    SELECT finish_time FROM prism_rewrites WHERE prism_table_id = w.id AND state = 'done' AND kind = 'fold'
    ORDER BY prism_rewrite_id DESC LIMIT 1
) f
"""


def last_settled_before(connection: Connection, table_id: int) -> datetime | None:
    """Returns the limit of settling in a table's last fold of all changes, or None.

    Reads without locks.
    """
    time: datetime | None = connection.execute(text(_SETTLED_BEFORE), {"table": table_id}).scalar_one_or_none()
    return time


_SETTLED_BEFORE = """
SELECT settle_before FROM prism_rewrites
WHERE prism_table_id = :table AND state = 'done' AND kind = 'fold' AND settle_before IS NOT NULL
ORDER BY prism_rewrite_id DESC LIMIT 1
"""


def load_unfolded(connection: Connection, table_id: int) -> list[UnfoldedDay]:
    """Returns the days of a log of changes with untaken small objects, in id order. Reads without locks."""
    return [UnfoldedDay(**row._mapping) for row in connection.execute(text(_UNFOLDED), {"table": table_id})]


_UNFOLDED = """
SELECT p.prism_partition_id AS partition_id, coalesce(f.folded_object_id, 0) AS folded_object_id, p.last_object_id
FROM prism_partitions p LEFT JOIN prism_fold_positions f USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.expire_time IS NULL AND p.last_object_id > coalesce(f.folded_object_id, 0)
ORDER BY p.prism_partition_id
"""


def load_positions(connection: Connection, partition_ids: Collection[int]) -> dict[int, int]:
    """Returns the last taken small object of days, by partition id, if a fold has taken any. Reads without locks.

    All objects up to it are taken. The position stops before the first set-aside object, which is still to be read.
    """
    rows = connection.execute(text(_POSITIONS), {"ids": list(partition_ids)})
    return {row.prism_partition_id: row.folded_object_id for row in rows}


_POSITIONS = """
SELECT prism_partition_id, least(folded_object_id, (SELECT min(a.prism_small_object_id) - 1
    FROM prism_set_aside_changes a WHERE a.prism_partition_id = f.prism_partition_id)) AS folded_object_id
FROM prism_fold_positions f WHERE prism_partition_id = ANY(:ids)
"""


def advance(
    connection: Connection,
    fold_id: int,
    taken: Sequence[UnfoldedDay],
    uppers: Mapping[int, int],
    changes: Mapping[int, int],
) -> None:
    """Notes that a fold has taken days up to the small objects `uppers`, with the number of changes of each.

    Locks the rows of the positions. The caller holds the lease of folds. Raises LeaseLost if a position has moved.
    """
    for day in taken:
        values = {
            "id": day.partition_id,
            "before": day.folded_object_id,
            "after": uppers[day.partition_id],
            "changes": changes[day.partition_id],
            "fold": fold_id,
        }
        if not connection.execute(text(_ADVANCE), values).rowcount:
            raise LeaseLost("another fold has taken these changes meanwhile; nothing was changed")


_ADVANCE = """
INSERT INTO prism_fold_positions AS f (prism_partition_id, folded_object_id, changes, fold_id)
SELECT :id, :after, :changes, :fold
WHERE :before = 0 OR EXISTS (SELECT 1 FROM prism_fold_positions WHERE prism_partition_id = :id)
ON CONFLICT (prism_partition_id) DO UPDATE
SET folded_object_id = :after, changes = f.changes + :changes, fold_id = :fold WHERE f.folded_object_id = :before
"""


def add_changes(connection: Connection, fold_id: int, changes: Mapping[int, int]) -> None:
    """Notes numbers of changes a fold has taken, by partition id, after earlier folds had left them out.

    Locks the rows of the positions, in id order. The caller holds the lease of folds.
    """
    for partition_id, count in sorted(changes.items()):
        connection.execute(text(_ADD_CHANGES), {"id": partition_id, "changes": count, "fold": fold_id})


_ADD_CHANGES = """
UPDATE prism_fold_positions SET changes = changes + :changes, fold_id = :fold WHERE prism_partition_id = :id
"""
