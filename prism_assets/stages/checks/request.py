"""The tables and limits of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.tables.definition import TableDefinition


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The tables to check, with their limits."""

    tables: Sequence[TableDefinition]
    limits: Mapping[str, CheckLimits]
    """By table name. A table without limits gets the defaults."""
    now: datetime
    since: datetime
    """Conversions from this time on are compared with the ledger."""
    day: date | None = None
    """If given, `rows_balance` judges the objects with rows of this day, and ignores `since`."""

    @property
    def ids(self) -> list[int]:
        """Ids of the tables."""
        return [table.table_id for table in self.tables]

    def limits_of(self, table: TableDefinition) -> CheckLimits:
        """Returns the limits of one table."""
        return self.limits.get(str(table.name)) or CheckLimits()
