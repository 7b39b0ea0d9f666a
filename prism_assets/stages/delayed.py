"""Finds delayed rows: rows of days already closed or switched, not readable or not merged yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.intake.delayed import delayed_days
from prism_assets.stages.context import StageContext

TAKEN_OVER_AFTER = timedelta(minutes=5)
"""One sensor alone asks for delayed rows. After this time others take over, in case that sensor is switched off."""


@dataclass(frozen=True, kw_only=True)
class DelayedRows:
    """Delayed rows of one day of one table."""

    table: str
    date: date
    unpublished_objects: int
    unpublished_rows: int
    unpublished_since: datetime | None
    """The arrival of the first unreadable row."""
    unmerged_objects: int
    unmerged_rows: int

    def is_fresh(self, now: datetime) -> bool:
        """Whether its unreadable rows came so recently that other sensors leave them to the first."""
        return self.unpublished_since is not None and now - self.unpublished_since < TAKEN_OVER_AFTER


def find_delayed(context: StageContext) -> list[DelayedRows]:
    """Returns all days with delayed rows, by table and date. Reads PostgreSQL alone, and changes nothing."""
    tables: Mapping[int, TableDefinition] = {table.table_id: table for table in context.choose_tables(None)}
    with context.database.begin() as connection:
        found = delayed_days(connection, tables)
    return [
        DelayedRows(
            table=str(tables[item.table_id].name),
            date=item.date,
            unpublished_objects=item.unpublished_objects,
            unpublished_rows=item.unpublished_rows,
            unpublished_since=item.oldest_unpublished,
            unmerged_objects=item.unmerged_objects,
            unmerged_rows=item.unmerged_rows,
        )
        for item in found
    ]
