"""What a run of Merge did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from prism_assets.domain.problems import Problem
from prism_assets.stages.sums import Summable


@dataclass(frozen=True, kw_only=True)
class MergedPartition:
    """What one finished job did. Sizes are bytes of the objects read, extended ones included, and of those written."""

    table_id: int
    date: date
    objects_in: int
    rows: int
    bytes_in: int
    sizes_in: tuple[int, ...]
    sizes: tuple[int, ...]
    plan: str
    left_behind: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class MergeReport(Summable):
    """What a run of Merge did; `problems` are the jobs that failed, `record_problems` merges of records.

    `record_faults` are objects of settled records that cannot be read: merges go on without them.
    """

    jobs: int = 0
    merged: tuple[MergedPartition, ...] = ()
    problems: tuple[Problem, ...] = ()
    record_problems: tuple[Problem, ...] = ()
    record_faults: tuple[Problem, ...] = ()
    reclaimed: int = 0
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """Rows written."""
        return sum(entry.rows for entry in self.merged)

    @property
    def errors(self) -> tuple[str, ...]:
        """What failed, one sentence each."""
        return tuple(str(problem) for problem in (*self.problems, *self.record_problems, *self.record_faults))
