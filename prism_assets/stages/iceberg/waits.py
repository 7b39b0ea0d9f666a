"""What keeps Iceberg tables from showing rows: a decision of a person, a commit that does not come, days left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection

from prism_assets.domain.snapshots import ACTIVE, waits_for_a_person
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.metadata import iceberg_figures, iceberg_tables

_LONG_BEHIND = 1_800
"""Seconds that no row should wait for its Iceberg table, unless its commits are very seldom."""


@dataclass(frozen=True, kw_only=True)
class IcebergWait:
    """One reason for which the Iceberg table of a table stands still, or does not show all that it should."""

    table_id: int
    table: str
    reason: str
    for_a_person: bool = True

    def __str__(self) -> str:
        return f"{self.table}: {self.reason}"


def find_iceberg_waits(connection: Connection, tables: Sequence[TableDefinition]) -> Iterator[IcebergWait]:
    """Tables to which nothing is committed before a person has decided, rows that wait long, and days left out.

    Reads without locks.
    """
    named = {table.table_id: table for table in tables if table.iceberg}
    for table_id, known in iceberg_tables.load_known_tables(connection, list(named)).items():
        table = named[table_id]
        if known.state != ACTIVE:
            waits = table.iceberg is not None and waits_for_a_person(known, table.iceberg.on_foreign)
            yield IcebergWait(
                table_id=table_id, table=str(table.name), reason=str(known.last_error), for_a_person=waits
            )
    for table_id, waiting in iceberg_figures.waiting_rows(connection, list(named)).items():
        if waiting.seconds > _LONG_BEHIND:
            name = str(named[table_id].name)
            reason = (
                f"rows of {counted(waiting.days, 'day')} wait to be shown by its Iceberg table, the first for "
                f"{waiting.seconds / 60:.0f} minutes; `prism iceberg publish --table {name}` says why"
            )
            yield IcebergWait(table_id=table_id, table=name, reason=reason)
    left_out: dict[int, list[date]] = {}
    for item in iceberg_figures.unlisted_days(connection, list(named)):
        left_out.setdefault(item.table_id, []).append(item.date)
    for table_id, days in left_out.items():
        name = str(named[table_id].name)
        reason = (
            f"its Iceberg table does not show {counted(len(days), 'day as it is', 'days as they are')}, {days[-1]} "
            f"among them; `prism iceberg plan --table {name}` says why"
        )
        yield IcebergWait(table_id=table_id, table=name, reason=reason)
