"""What a catalog run would do now, without doing it: the decisions of the stage, taken from the same functions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.partitions import Partition, current_publication, switch_refusal, wanted_publication
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import partitions
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class CatalogStep:
    """One thing the run would do to one partition, or why it would not."""

    table: str
    date: date
    step: str


def preview(context: StageContext, *, now: datetime, names: Collection[str] | None = None) -> list[CatalogStep]:
    """The steps of the next run, by table and date."""
    tables = {table.table_id: table for table in context.choose_tables(names)}
    steps = []
    with context.database.begin() as connection:
        for partition in partitions.load_restless(connection, list(tables)):
            table = tables[partition.table_id]
            for step in _steps(connection, table, partition, now):
                steps.append(CatalogStep(table=str(table.name), date=partition.date, step=step))
    return steps


def _steps(connection: Connection, table: TableDefinition, partition: Partition, now: datetime) -> list[str]:
    steps = []
    if not partition.is_open and not partition.switched:
        refusal = switch_refusal(partition, partitions.switch_evidence(connection, partition.partition_id))
        steps.append(f"not switch: {refusal}" if refusal else "switch readers to the merged objects")
    if partition.is_open and table.day_ends(partition.date) <= now:
        if partition.closing_batch_id is None:
            steps.append("mark for closing, and close as soon as no earlier staging object is unfinished")
        elif left := partitions.unfinished_before(connection, table.table_id, partition.closing_batch_id):
            steps.append(f"not close: {left} staging objects of before the end of its day are not converted yet")
        else:
            steps.append("close")
    if current_publication(partition) != wanted_publication(partition):
        steps.append("publish" if partition.is_published else "publish for the first time")
    return steps
