"""Statements on prism_record_moves: records moved by folds from one day to another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date

from sqlalchemy import Connection, text

from prism_assets.domain.records.folding import RecordMove
from prism_assets.domain.records.order import PartitionMove


def insert(
    connection: Connection, fold_id: int, moves: Collection[RecordMove], partition_ids: Mapping[date, int]
) -> None:
    """Records the moves of a fold. The caller holds the rows of the partitions."""
    rows = [
        {"fold": fold_id, "from": partition_ids[move.from_date], "to": partition_ids[move.to_date]} for move in moves
    ]
    if rows:
        connection.execute(text(_INSERT), rows)


_INSERT = """
INSERT INTO prism_record_moves (prism_rewrite_id, from_partition_id, to_partition_id) VALUES (:fold, :from, :to)
"""


def load_between(connection: Connection, partition_ids: Collection[int]) -> list[PartitionMove]:
    """Returns the moves of folds between any two of these partitions. Reads without locks, by the primary key."""
    rows = connection.execute(text(_BETWEEN), {"ids": list(partition_ids)})
    return [PartitionMove(**row._mapping) for row in rows]


_BETWEEN = """
SELECT prism_rewrite_id AS fold_id, from_partition_id AS from_id, to_partition_id AS to_id FROM prism_record_moves
WHERE from_partition_id = ANY(:ids) AND to_partition_id = ANY(:ids)
ORDER BY prism_rewrite_id, from_partition_id, to_partition_id
"""
