"""The report of a run of Merge."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from prism_assets.domain.problems import Problem
from prism_assets.stages.sums import Summable


@dataclass(frozen=True, kw_only=True)
class MergedPartition:
    """The result of one finished job."""

    table_id: int
    date: date
    objects_in: int
    rows: int
    bytes_in: int
    sizes_in: tuple[int, ...]
    """Bytes of each input, extended ranges included."""
    sizes: tuple[int, ...]
    """Bytes of each written object."""
    plan: str
    left_behind: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class MergeReport(Summable):
    """The result of a run of Merge."""

    jobs: int = 0
    merged: tuple[MergedPartition, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Failed jobs."""
    record_problems: tuple[Problem, ...] = ()
    """Failed merges of records."""
    record_faults: tuple[Problem, ...] = ()
    """Unreadable objects of settled records. Merges go on without them."""
    reclaimed: int = 0
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """Rows written."""
        return sum(entry.rows for entry in self.merged)

    @property
    def errors(self) -> tuple[str, ...]:
        """All problems and faults, one sentence each."""
        return tuple(str(problem) for problem in (*self.problems, *self.record_problems, *self.record_faults))
