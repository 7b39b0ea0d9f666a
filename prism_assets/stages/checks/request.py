"""Which tables checks are asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prism_assets.domain.limits import CheckLimits
from prism_assets.domain.tables import TableDefinition


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """Which tables to check, and by which limits (the defaults for a table without any).

    `since` is from when on conversions are held against the ledger.
    """

    tables: Sequence[TableDefinition]
    limits: Mapping[str, CheckLimits]
    now: datetime
    since: datetime

    @property
    def ids(self) -> list[int]:
        """Ids of the tables."""
        return [table.table_id for table in self.tables]

    def limits_of(self, table: TableDefinition) -> CheckLimits:
        """The limits of one table."""
        return self.limits.get(str(table.name)) or CheckLimits()
