"""The order for publishing days of records: a day may lose a record only after the day that receives it is shown.

A late change may join two records of different days. A fold puts the joined record into the earlier day and removes the
row from the later one. Readers see the two days change one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.days.partitions import Partition


@dataclass(frozen=True, kw_only=True)
class PartitionMove:
    """A fold moved records from one partition to another one of an earlier day."""

    fold_id: int
    from_id: int
    to_id: int


def awaited_day(partition: Partition, due: Mapping[int, Partition], moves: Collection[PartitionMove]) -> date | None:
    """Returns the day a catalog must show before this partition's current content, or None if nothing must wait.

    `due` are the table's partitions, by id, with outdated content in the catalog. Days already shown need no wait, and
    a day not shown at all can lose nothing.
    """
    if not partition.is_published:
        return None
    awaited = (
        due[move.to_id].date
        for move in moves
        if move.from_id == partition.partition_id
        and move.to_id in due
        and move.fold_id > max(partition.current_version, due[move.to_id].current_version)
    )
    return min(awaited, default=None)
