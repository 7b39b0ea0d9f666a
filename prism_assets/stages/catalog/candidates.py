"""Partitions with possible work for a catalog run, in PostgreSQL or by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.days.lifecycle import may_expire
from prism_assets.domain.days.partitions import GLUE, Partition
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import clock
from prism_assets.metadata.days import partitions, publications, retention


def load_candidates(
    connection: Connection, tables: Sequence[TableDefinition], now: datetime, publisher: str = GLUE
) -> list[Partition]:
    """Returns partitions known to lag in PostgreSQL or past their table's retention, by table and date.

    A partition is past retention only if the database's clock agrees. Publications are those of the publisher.
    """
    found = partitions.load_pending(connection, [table.table_id for table in tables], publisher)
    if limited := [table for table in tables if table.retention_days is not None]:
        now = clock.not_ahead(connection, now)
        oldest_kept = {table.table_id: day for table in limited if (day := table.oldest_kept(now)) is not None}
        known = {item.partition_id for item in found}
        found += [item for item in retention.load_older(connection, oldest_kept) if item.partition_id not in known]
    found = publications.as_shown_by(connection, publisher, found)
    return sorted(found, key=lambda item: (item.table_id, item.date))


def choose_expiring(
    pending: Sequence[Partition], table: TableDefinition, now: datetime, most: int
) -> tuple[Sequence[Partition], Sequence[Partition]]:
    """Splits a table's expiring days: the oldest, at most `most`, for this run, and the rest for the next ones."""
    old = [item for item in pending if may_expire(item, table.expires(item.date), now)]
    return old[:most], old[most:]
