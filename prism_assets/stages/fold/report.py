"""What folds did: one value for the terminal, for JSON, for Dagster and for tests."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from prism_assets.domain.problems import Problem
from prism_assets.domain.words import counted
from prism_assets.metadata.folds import FoldCounts
from prism_assets.metadata.leases import Holder, in_brackets


@dataclass(frozen=True, kw_only=True)
class Fold:
    """One fold that was committed. `days` are those whose readers see other records after the next publication.

    `is_whole` if it took all changes that were there, and not only as many as one fold takes. `join_delays` counts how
    far the parts of records that it changed lie apart, in the steps of `domain/join_delays.py`. Of `undecided` keys
    nobody can tell whether they are erased.
    """

    table: str
    table_id: int
    fold_id: int
    reason: str
    counts: FoldCounts
    pending: int
    days: tuple[datetime.date, ...]
    join_delays: tuple[int, ...]
    is_whole: bool
    seconds: float
    undecided: int = 0

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
    """A table that another run is at: its `holder`, unless it just ended."""

    table: str
    holder: Holder | None

    @property
    def reason(self) -> str:
        """Why it was skipped, and who has it."""
        return f"another fold is at it{in_brackets(self.holder)}; nothing was done; repeat when that has ended"


@dataclass(frozen=True, kw_only=True)
class FoldReport:
    """What a run of folds did, and what it left as it was.

    `problems` kept a table from its fold, `faults` are objects that folds go on without.
    """

    folds: tuple[Fold, ...] = ()
    problems: tuple[Problem, ...] = ()
    faults: tuple[Problem, ...] = ()
    skipped: tuple[SkippedTable, ...] = ()
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        """Whether anything came of it: a fold may find that what it was due for has changed by changes that wait."""
        return any(fold.counts != FoldCounts() for fold in self.folds)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong and what was left undone, one sentence each."""
        return (*map(str, (*self.problems, *self.faults)), *(f"{item.table}: {item.reason}" for item in self.skipped))
