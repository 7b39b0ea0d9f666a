"""Finds the partitions that a catalog run would move on now, cheaply enough to be asked every few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.partitions import (
    Partition,
    PartitionState,
    current_publication,
    switch_refusal,
    wanted_publication,
)
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import partitions, publications
from prism_assets.stages.context import StageContext

PUBLISH = "publish"
COMPARE = "compare"


@dataclass(frozen=True, kw_only=True)
class CatalogWork:
    """One partition that the next catalog run would move on: `step` is publish, close or switch.

    Or, with the date of today, a whole table that it would compare with the catalog: `step` is compare.
    """

    table: str
    date: date
    step: str


def find_catalog_work(context: StageContext, *, now: datetime) -> list[CatalogWork]:
    """All such partitions, by table and date, then tables. What only waits for something else is not among them."""
    tables = {table.table_id: table for table in context.choose_tables(None)}
    settings = context.settings
    with context.database.begin() as connection:
        doubts = publications.load_doubts(
            connection, list(tables), settings.catalog_compare_seconds, settings.lease_seconds
        )
        pending = partitions.load_pending(connection, list(tables))
        steps = [(item, _next_step(connection, tables[item.table_id], item, now)) for item in pending]
    moves = [
        CatalogWork(table=str(tables[item.table_id].name), date=item.date, step=step) for item, step in steps if step
    ]
    compared = [
        CatalogWork(table=str(tables[table_id].name), date=tables[table_id].today(now), step=COMPARE)
        for table_id in doubts
    ]
    return moves + compared


def _next_step(connection: Connection, table: TableDefinition, item: Partition, now: datetime) -> str | None:
    if current_publication(item) != wanted_publication(item):
        return PUBLISH
    if item.is_open:
        return "close" if _can_close(connection, table, item, now) else None
    return "switch" if _can_switch(connection, item) else None


def _can_close(connection: Connection, table: TableDefinition, item: Partition, now: datetime) -> bool:
    if table.day_ends(item.date) > now:
        return False
    if item.closing_batch_id is None:
        return True
    return partitions.unfinished_before(connection, table.table_id, item.closing_batch_id) == 0


def _can_switch(connection: Connection, item: Partition) -> bool:
    """Sums up the evidence only where the bounds allow a switch: a sum over all objects of a day is not cheap."""
    covered = 0 < item.desired_version >= (item.last_live_object_id or 0)
    if not covered or item.state is not PartitionState.CLOSED:
        return False
    return switch_refusal(item, partitions.switch_evidence(connection, item.partition_id)) is None
