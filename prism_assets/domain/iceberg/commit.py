"""A commit to an Iceberg table and its changes: one value for the log, the report and Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.files.data_file import smallest_urls
from prism_assets.domain.iceberg.snapshots import DayChange
from prism_assets.domain.text import counted

COMMITTED, SETTLED, REFUSED = "committed", "settled", "refused"
"""Outcomes of a commit; see `IcebergCommit`."""


@dataclass(frozen=True, kw_only=True)
class IcebergDay:
    """The changes of one day in a commit."""

    date: date
    files_in: int
    files_out: int
    rows_in: int
    rows_out: int
    examples: tuple[str, ...] = ()
    """URLs of the smallest added files."""

    @classmethod
    def of(cls, change: DayChange) -> IcebergDay:
        """Returns the summary of a day's change."""
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
    """One commit: a row of prism_iceberg_log.

    Fields from `by_day` on are known only right after the commit and are not in the log.
    """

    table_id: int
    seconds: float
    """Duration of the whole commit."""
    outcome: str
    """committed, settled (the answer was lost) or refused."""
    worker: str
    commit_time: datetime
    snapshot_id: int | None = None
    operation: str | None = None
    """None without a snapshot, for commits of columns, tags or expired snapshots."""
    files_in: int = 0
    files_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    message: str | None = None
    foreign_snapshots: int = 0
    """Foreign snapshots undone by the commit."""
    by_day: tuple[IcebergDay, ...] = ()
    expired: int = 0
    """Expired snapshots."""
    seconds_behind: float | None = None
    """How long the first added small object had waited. None without added objects, or if every day was compared."""

    def __str__(self) -> str:
        if self.operation is None:
            return f"the table's metadata was changed in {self.seconds:.1f} s"
        return (
            f"snapshot {self.snapshot_id} ({self.operation}): {counted(self.files_in, 'file')} of "
            f"{counted(self.rows_in, 'row')} in, "
            f"{self.files_out} of {self.rows_out:,} out, {counted(len(self.by_day), 'day')}, {self.seconds:.1f} s"
        )
