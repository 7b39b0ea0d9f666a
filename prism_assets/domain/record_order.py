"""In which order days of records are published: no day loses a record before the day that has it now shows it.

A late change may join two records of different days. A fold puts what they are together into the earlier day, and takes
the row out of the later one; readers see the two days change one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.partitions import Partition


@dataclass(frozen=True, kw_only=True)
class PartitionMove:
    """A fold took records out of one partition, and into another one, of an earlier day."""

    fold_id: int
    from_id: int
    to_id: int


def awaited_day(partition: Partition, due: Mapping[int, Partition], moves: Collection[PartitionMove]) -> date | None:
    """The day that a catalog must show before it shows what a partition holds now; None if it may show that.

    `due` are the partitions of the table, by id, that it shows otherwise than it should. What it shows already of
    either day no longer waits, and a day that it does not show at all can lose nothing.
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
