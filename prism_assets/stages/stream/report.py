"""Results of Stream's batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date

from prism_assets.domain.problems import Problem
from prism_assets.domain.streams.quarantine_advice import ReasonCount
from prism_assets.stages.sums import Summable, summed_by


@dataclass(frozen=True, kw_only=True)
class PartitionChange:
    """Additions of a batch to one partition."""

    table_id: int
    date: date
    objects: int
    delayed_objects: int
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class TableLines:
    """Lines a batch read for one table, of all days."""

    table_id: int
    lines_in: int
    quarantined: int
    filtered: int
    elsewhere: int = 0
    """Lines that routes give to other tables."""
    reasons: tuple[ReasonCount, ...] = ()
    """Counts of quarantined lines by reason."""


def sum_lines(lines: Iterable[TableLines]) -> tuple[TableLines, ...]:
    """Returns one entry per table, by its id."""
    totals: dict[int, TableLines] = {}
    for item in lines:
        before = totals.get(item.table_id)
        totals[item.table_id] = (
            item
            if before is None
            else TableLines(
                table_id=item.table_id,
                lines_in=before.lines_in + item.lines_in,
                quarantined=before.quarantined + item.quarantined,
                filtered=before.filtered + item.filtered,
                elsewhere=before.elsewhere + item.elsewhere,
                reasons=sum_reasons((*before.reasons, *item.reasons)),
            )
        )
    return tuple(totals[table] for table in sorted(totals))


def sum_reasons(counts: Iterable[ReasonCount]) -> tuple[ReasonCount, ...]:
    """Returns one count per reason, in order of the reasons."""
    totals = Counter[str]()
    for reason, lines in counts:
        totals[reason] += lines
    return tuple(sorted(totals.items()))


def sum_changes(changes: Iterable[PartitionChange]) -> tuple[PartitionChange, ...]:
    """Returns one change per partition, by table and date."""
    totals: dict[tuple[int, date], PartitionChange] = {}
    for change in changes:
        key = (change.table_id, change.date)
        before = totals.get(key)
        totals[key] = change if before is None else _add(before, change)
    return tuple(totals[key] for key in sorted(totals))


def _add(left: PartitionChange, right: PartitionChange) -> PartitionChange:
    return replace(
        left,
        objects=left.objects + right.objects,
        delayed_objects=left.delayed_objects + right.delayed_objects,
        rows=left.rows + right.rows,
        bytes=left.bytes + right.bytes,
    )


@dataclass(frozen=True, kw_only=True)
class StreamReport(Summable):
    """Results of one or several batches."""

    batches: int = 0
    batch_ids: tuple[int, ...] = ()
    """Committed batches."""
    objects: int = 0
    lines_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    """Lines."""
    filtered: int = 0
    """Lines."""
    elsewhere: int = 0
    """Lines that routes give to other tables, once for each table that read them."""
    unfit_values: int = 0
    """Values of rows that became null, or were cut."""
    small_objects: int = 0
    bytes_in: int = 0
    retried: int = 0
    problems: tuple[Problem, ...] = ()
    """Objects given up, and their uploads that could not be removed."""
    reclaimed: int = 0
    """Objects of dead batches."""
    restarted: int = 0
    """Given-up objects restarted automatically."""
    discarded: int = 0
    """Objects counted done without being read."""
    changes: tuple[PartitionChange, ...] = summed_by(lambda ours, theirs: sum_changes((*ours, *theirs)), ())
    lines: tuple[TableLines, ...] = summed_by(lambda ours, theirs: sum_lines((*ours, *theirs)), ())
    seconds: float = 0.0

    @property
    def errors(self) -> tuple[str, ...]:
        """The problems, one sentence each."""
        return tuple(problem.reason for problem in self.problems)
