"""A commit to an Iceberg table: what it was, what came and what went. One value for the log, the report and Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.files import smallest_urls
from prism_assets.domain.snapshots import DayChange
from prism_assets.domain.words import counted

COMMITTED, SETTLED, REFUSED = "committed", "settled", "refused"
"""Outcomes of a commit; see `IcebergCommit`."""


@dataclass(frozen=True, kw_only=True)
class IcebergDay:
    """What a commit changed about one day; `examples` are addresses of the smallest of the files that came."""

    date: date
    files_in: int
    files_out: int
    rows_in: int
    rows_out: int
    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, change: DayChange) -> IcebergDay:
        """What a change says of its day."""
        return cls(
            date=change.date,
            files_in=len(change.added),
            files_out=len(change.removed),
            rows_in=change.rows_in,
            rows_out=change.rows_out,
            examples=smallest_urls(change.added),
        )


@dataclass(frozen=True, kw_only=True)
class IcebergCommit:
    """One commit, and how long the whole of it took: a row of prism_iceberg_log.

    `outcome` is committed, settled (its answer was lost) or refused. `operation` is None where it made no snapshot, as
    one of columns, tags or snapshots that go. `foreign_snapshots` are those of others that it took back.

    Who has just made it knows more than the log keeps: `by_day`, how many snapshots expired, and `seconds_behind`, how
    long the first of the small objects that it added had waited to be listed; None if it added none, or compared every
    day, old ones too.
    """

    table_id: int
    seconds: float
    outcome: str
    worker: str
    commit_time: datetime
    snapshot_id: int | None = None
    operation: str | None = None
    files_in: int = 0
    files_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    message: str | None = None
    foreign_snapshots: int = 0
    by_day: tuple[IcebergDay, ...] = ()
    expired: int = 0
    seconds_behind: float | None = None

    def __str__(self) -> str:
        if self.operation is None:
            return f"the table's metadata was changed in {self.seconds:.1f} s"
        return (
            f"snapshot {self.snapshot_id} ({self.operation}): {counted(self.files_in, 'file')} of "
            f"{counted(self.rows_in, 'row')} in, "
            f"{self.files_out} of {self.rows_out:,} out, {counted(len(self.by_day), 'day')}, {self.seconds:.1f} s"
        )
