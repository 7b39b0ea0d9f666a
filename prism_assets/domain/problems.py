"""A failure reported by a stage that continues with everything else."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from prism_assets.domain.errors import WORTH_REPEATING


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of a table on one event date, or in general if `date` is None. `transient`: a retry may help."""

    table: str
    reason: str
    date: datetime.date | None = None
    transient: bool = False

    @classmethod
    def of(cls, error: Exception, table: str, day: datetime.date | None = None) -> Problem:
        """Returns the problem of an error for a table."""
        return cls(table=table, reason=str(error), date=day, transient=isinstance(error, WORTH_REPEATING))

    def __str__(self) -> str:
        where = self.table if self.date is None else f"{self.table} {self.date}"
        return f"{where}: {self.reason}"
