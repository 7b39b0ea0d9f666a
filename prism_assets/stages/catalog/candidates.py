"""The partitions that a catalog run may have to do something about, by the clock, too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.lifecycle import may_expire
from prism_assets.domain.partitions import GLUE, Partition
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import clock, partitions, publications, retention


def load_candidates(
    connection: Connection, tables: Sequence[TableDefinition], now: datetime, publisher: str = GLUE
) -> list[Partition]:
    """Those that PostgreSQL knows to be behind, and those that are older than their table keeps, by table and date.

    They are too old by the clock of the database, too. What is published of them is that of the publisher.
    """
    now = clock.not_ahead(connection, now)
    oldest_kept = {table.table_id: day for table in tables if (day := table.oldest_kept(now)) is not None}
    found = partitions.load_pending(connection, [table.table_id for table in tables], publisher)
    if oldest_kept:
        known = {item.partition_id for item in found}
        found += [item for item in retention.load_older(connection, oldest_kept) if item.partition_id not in known]
    found = publications.as_shown_by(connection, publisher, found)
    return sorted(found, key=lambda item: (item.table_id, item.date))


def choose_expiring(
    pending: Sequence[Partition], table: TableDefinition, now: datetime, most: int
) -> tuple[Sequence[Partition], Sequence[Partition]]:
    """The days of a table that one run ends, the oldest ones, at most so many; and those that are left to the next."""
    old = [item for item in pending if may_expire(item, table.expires(item.date), now)]
    return old[:most], old[most:]
