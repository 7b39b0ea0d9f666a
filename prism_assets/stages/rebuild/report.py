"""The result or the plan of a rebuild: one value for the terminal, JSON, Dagster and tests."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.metadata.leases import Holder, in_brackets
from prism_assets.metadata.rewrites.rebuild_sources import SourceTotals
from prism_assets.metadata.rewrites.rebuilt_objects import DayTotals


@dataclass(frozen=True, kw_only=True)
class RebuiltTotals:
    """Changes of a rebuild."""

    objects: int
    """Staging objects read."""
    rows_before: int
    rows_after: int
    ranges: int
    """Merged objects written."""
    added: int
    """Small objects of staging objects that had no row of the day."""
    quarantined_before: int
    quarantined_after: int
    filtered_before: int
    filtered_after: int
    elsewhere_before: int
    """Lines that routes gave to other tables."""
    elsewhere_after: int

    @classmethod
    def between(cls, before: DayTotals, after: DayTotals, *, ranges: int, added: int) -> RebuiltTotals:
        """The difference between two states of a day."""
        return cls(
            objects=after.objects,
            rows_before=before.rows,
            rows_after=after.rows,
            ranges=ranges,
            added=added,
            quarantined_before=before.quarantined,
            quarantined_after=after.quarantined,
            filtered_before=before.filtered,
            filtered_after=after.filtered,
            elsewhere_before=before.elsewhere,
            elsewhere_after=after.elsewhere,
        )


@dataclass(frozen=True, kw_only=True)
class RebuildPlan:
    """The objects a rebuild of one day reads and writes, or the `obstacle` that leaves the day unchanged."""

    table: str
    date: datetime.date
    version: int
    candidates: SourceTotals
    ranges: int
    obstacle: str | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether all rows of the day are of the definition in force already."""
        return not self.candidates.objects

    def __str__(self) -> str:
        where = f"{self.table} {self.date}"
        if self.obstacle:
            return f"{where}: is not rebuilt: {self.obstacle}"
        stay = _stay(self.candidates.left_in_quarantine)
        if self.changes_nothing:
            return f"{where}: nothing to rebuild, its rows are of version {self.version} of the definition{stay}"
        several = self.candidates.of_several_days
        others = f"; {several} of them have rows of other days, too, which stay as they are" if several else ""
        return (
            f"{where}: convert {counted(self.candidates.objects, 'staging object')} of "
            f"{self.candidates.content_length / 1e6:.1f} MB under version {self.version} of the definition, merge "
            f"{counted(self.ranges, 'object')} anew{others}{stay}"
        )


def _stay(left_in_quarantine: int) -> str:
    """Returns a sentence about objects with erased lines whose other lines wait for the day."""
    if not left_in_quarantine:
        return ""
    what = counted(left_in_quarantine, "object")
    return f"; lines of {what} that wait for the day stay in quarantine, as others were erased"


@dataclass(frozen=True, kw_only=True)
class RebuiltDay:
    """The result for one day. `totals` is None without a change; `missing` are deleted staging objects."""

    table: str
    table_id: int
    date: datetime.date
    version: int
    totals: RebuiltTotals | None = None
    missing: tuple[str, ...] = ()
    left_in_quarantine: int = 0
    """Objects whose lines for the day stay in quarantine, because other lines of them were erased."""
    resumed: bool = False
    skipped: bool = False
    """Another run has the day."""
    holder: Holder | None = None
    """The other run, or None if it has just ended."""

    def __str__(self) -> str:
        where = f"{self.table} {self.date}"
        if self.skipped:
            who = f"another rebuild is working on it{in_brackets(self.holder)}"
            return f"{where}: {who}; nothing was done; repeat when that has ended"
        stay = _stay(self.left_in_quarantine)
        if self.totals is None:
            return f"{where}: nothing to rebuild, its rows are of version {self.version} of the definition{stay}"
        done = self.totals
        left = (
            f"; {counted(len(self.missing), 'staging object is', 'staging objects are')} gone, whose rows stay as "
            "they were"
            if self.missing
            else ""
        )
        return (
            f"{where}: {counted(done.objects, 'staging object')} converted under version {self.version} of the "
            f"definition, {counted(done.rows_after, 'row')} (before: {done.rows_before:,}), "
            f"{counted(done.quarantined_after, 'line')} quarantined "
            f"(before: {done.quarantined_before:,}), {done.filtered_after:,} filtered (before: "
            f"{done.filtered_before:,}){_elsewhere(done)}{left}{stay}"
        )


def _elsewhere(done: RebuiltTotals) -> str:
    if not (done.elsewhere_before or done.elsewhere_after):
        return ""
    return f", {done.elsewhere_after:,} of other tables (before: {done.elsewhere_before:,})"


@dataclass(frozen=True, kw_only=True)
class RecordsPlan:
    """The changes a rebuild of a join table's records reads, and the days whose records differ from the changes."""

    table: str
    changes: int
    content_length: int
    waiting: int
    """Changes that wait for their records."""
    different: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Sentences about unreadable objects."""
    changes_from: datetime.datetime | None = None
    """Earlier records are not compared, if changes are not kept for ever."""

    def __str__(self) -> str:
        read = (
            f"{self.table}: {counted(self.changes, 'change')} and all records read, {self.content_length / 1e6:.1f} MB"
        )
        if not self.different and not self.waiting:
            same = f"{read}; nothing to rebuild, the records are what their changes make"
            return "\n".join([same, *unmade(self.changes_from)])
        waiting = f"; take {self.waiting:,} changes that wait" if self.waiting else ""
        return "\n".join(
            [
                f"{read}{waiting}; write {counted(len(self.different), 'day')}",
                *self.different,
                *self.unread,
                *unmade(self.changes_from),
            ]
        )


@dataclass(frozen=True, kw_only=True)
class RebuiltRecords:
    """The result for the records of a join table. `different` has the reasons for the written `days`."""

    table: str
    table_id: int
    fold_id: int | None = None
    changes: int = 0
    records: int = 0
    """Records made of the `changes`."""
    expired: int = 0
    """Records not made, because their day has expired."""
    days: tuple[datetime.date, ...] = ()
    different: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Unreadable objects."""
    rows_written: int = 0
    bytes_written: int = 0
    waited: int = 0
    seconds: float = 0.0
    changes_from: datetime.datetime | None = None
    skipped: bool = False
    """A fold has the table."""
    holder: Holder | None = None
    """The fold's worker, or None if it has just ended."""

    def __str__(self) -> str:
        if self.skipped:
            return (
                f"{self.table}: a fold is working on it{in_brackets(self.holder)}; nothing was done; repeat when that "
                "has ended"
            )
        made = f"{self.table}: {self.records:,} records made of {self.changes:,} changes"
        if self.expired:
            made += f" ({self.expired:,} of expired days were left out)"
        if self.fold_id is None:
            return f"{made}; nothing to rebuild, they are those that are there"
        waited = f", {self.waited:,} changes that waited taken" if self.waited else ""
        written = f"{counted(self.rows_written, 'row')} of {counted(len(self.days), 'day')} written"
        return f"{made}; {written}{waited}, all other days are as they were"


def unmade(changes_from: datetime.datetime | None) -> tuple[str, ...]:
    """Returns the sentence about changes not kept for ever."""
    if changes_from is None:
        return ()
    return (
        f"records that begin before {changes_from:%Y-%m-%d %H:%M}Z stay as they are: not all of their changes are kept "
        "(changes.retention_days)",
    )


@dataclass(frozen=True, kw_only=True)
class RebuildReport:
    """The result of a rebuild for the requested days, and problems with unchanged ones.

    A join table is rebuilt as a whole: it has no days here, and `records` has its result.
    """

    table: str
    days: tuple[RebuiltDay, ...] = ()
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0
    records: tuple[RebuiltRecords, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was changed."""
        return any(day.totals for day in self.days) or any(item.fold_id for item in self.records)

    @property
    def skipped(self) -> tuple[Problem, ...]:
        """Work of other runs, to be tried again."""
        days = [(day.date, str(day)) for day in self.days if day.skipped]
        whole = [(None, str(item)) for item in self.records if item.skipped]
        return tuple(Problem(table=self.table, date=day, reason=why, transient=True) for day, why in (*days, *whole))

    @property
    def errors(self) -> tuple[str, ...]:
        """Problems and skipped work, one sentence each."""
        return (*map(str, self.problems), *(item.reason for item in self.skipped))
