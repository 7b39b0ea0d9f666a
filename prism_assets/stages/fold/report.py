"""Results of folds: one value for the terminal, JSON, Dagster and tests."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.metadata.leases import Holder, in_brackets
from prism_assets.metadata.records.folds import FoldCounts


@dataclass(frozen=True, kw_only=True)
class Fold:
    """One committed fold."""

    table: str
    table_id: int
    fold_id: int
    reason: str
    counts: FoldCounts
    pending: int
    days: tuple[datetime.date, ...]
    """Days whose readers see other records after the next publication."""
    join_delays: tuple[int, ...]
    """Counts of the time between parts of the changed records, in the steps of `domain/records/join_delays.py`."""
    is_whole: bool
    """It took all changes, not only as many as one fold takes."""
    seconds: float
    undecided: int = 0
    """Keys with an unknown erasure state."""

    def __str__(self) -> str:
        done = self.counts
        waiting = f", {self.pending:,} wait" if self.pending else ""
        return (
            f"{self.table}: {self.reason}: {counted(done.changes_in, 'change')} in, {done.changes_folded:,} "
            f"folded{waiting}; "
            f"{counted(done.rows_written, 'row')} of {counted(len(self.days), 'day')} written in {self.seconds:.1f} s"
        )


@dataclass(frozen=True, kw_only=True)
class SkippedTable:
    """A table held by another run."""

    table: str
    holder: Holder | None
    """None if the run has just ended."""

    @property
    def reason(self) -> str:
        """Why the table was skipped, with the holder."""
        return f"another fold is working on it{in_brackets(self.holder)}; nothing was done; repeat when that has ended"


@dataclass(frozen=True, kw_only=True)
class FoldReport:
    """The result of a run of folds."""

    folds: tuple[Fold, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Reasons that kept a table from its fold."""
    faults: tuple[Problem, ...] = ()
    """Unreadable objects left out by folds."""
    skipped: tuple[SkippedTable, ...] = ()
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        """Whether any count is not zero. A due fold may find that waiting changes have removed its reason."""
        return any(fold.counts != FoldCounts() for fold in self.folds)

    @property
    def errors(self) -> tuple[str, ...]:
        """Problems, faults and skipped tables, one sentence each."""
        return (*map(str, (*self.problems, *self.faults)), *(f"{item.table}: {item.reason}" for item in self.skipped))
