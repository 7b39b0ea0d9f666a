"""Replay: quarantined lines that are rows under the definition in force leave the quarantine, and become such.

Objects of which no line is a row yet begin anew, and are converted by the next batch of Stream like any other: by its
rules for late rows, and with all their lines, as those in quarantine may have been blanked. The commit that adds their
rows says anew what is in quarantine of them; until then that stays as it is.

Of objects that have rows the days are rebuilt, which replaces these rows in the same step as it adds others. What such
a rebuild finds to be of another day it records, and that day is rebuilt next. Everything is asked of PostgreSQL again
before each round, so that a replay that died is gone on with by the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime

from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.reasons import OTHER_DAY
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import replays
from prism_assets.metadata.rebuild_candidates import DayToRebuild
from prism_assets.metadata.replays import ReplayCandidate
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import check_not_held
from prism_assets.stages.rebuild.plan import days_of_arrival, load_days, plan_day
from prism_assets.stages.rebuild.report import RebuildPlan, RebuildReport
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.report import ReplayReport
from prism_assets.stages.stream.run import run_stream

_AT_ONCE = 1_000
_LOOKS = 8


def run_replay(
    context: StageContext,
    name: str,
    *,
    reasons: Collection[str] | None = None,
    without_missing: bool = False,
    dry_run: bool = False,
    now: datetime,
) -> ReplayReport:
    """Replays the quarantine of a table, of objects with lines for any of these reasons.

    Lines that rebuilds have left for other days are always replayed: they wait for nothing else. Repeating it changes
    nothing: an object that was read under the definition in force, and has no line left for another day, is not read
    again. With `without_missing` days are rebuilt as far as staging objects are there; otherwise one that is gone keeps
    its days as they are.
    """
    context.check_lake()
    (table,) = context.choose_logs([name])
    check_not_held(context, table)
    replay = _Replay(context, table, None if reasons is None else {*reasons, OTHER_DAY}, without_missing, now)
    return replay.preview() if dry_run else replay.run()


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Objects with lines that may be rows: those that begin anew, those that are gone, and those that have rows.

    Those of which lines were erased stay as they are: they still hold these lines, which might not match by now.
    """

    anew: Sequence[ReplayCandidate]
    missing: Sequence[ReplayCandidate]
    with_rows: Sequence[ReplayCandidate]
    erased: Sequence[ReplayCandidate]


class _Replay:
    def __init__(
        self,
        context: StageContext,
        table: TableDefinition,
        reasons: Collection[str] | None,
        without_missing: bool,
        now: datetime,
    ) -> None:
        self._context = context
        self._table = table
        self._reasons = reasons
        self._without_missing = without_missing
        self._now = now
        self._is_folded = table.change_log is not None

    def preview(self) -> ReplayReport:
        """What a replay would do; days that only the lines themselves tell are not known yet."""
        chosen = self._choose(begin=False)
        days = self._days_behind(chosen.with_rows) | self._other_dates(chosen.with_rows)
        return replace(self._report(chosen), dry_run=True, days=tuple(map(self._plan, self._known(days))))

    def run(self) -> ReplayReport:
        """Converts anew what has no rows, and then rebuilds days until nothing is left that it could make a row of."""
        chosen = self._choose(begin=True)
        streamed = run_stream(self._context, now=self._now, names=[str(self._table.name)])
        gone = {item.staging_object_id for item in chosen.missing}
        rebuilt = self._rebuild(gone)
        left = self._to_rebuild(gone)
        still = self._known(self._days_behind(left) | self._other_dates(left))
        numbers = [item.staging_object_id for item in (*chosen.anew, *chosen.with_rows)]
        with self._context.database.begin() as connection:
            rows = replays.count_rows(connection, numbers)
            stay = {item.staging_object_id for item in (*left, *chosen.erased)}
            lines = replays.load_left(connection, {*numbers, *stay})
        before = sum(item.rows for item in (*chosen.anew, *chosen.with_rows))
        return replace(
            self._report(chosen),
            days=tuple(plan for plan in map(self._plan, still) if plan.obstacle),
            streamed=streamed,
            rebuilt=tuple(rebuilt),
            rows_added=rows - before,
            left=tuple(lines),
        )

    def _report(self, chosen: _Chosen) -> ReplayReport:
        return ReplayReport(
            table=str(self._table.name),
            version=self._table.version,
            objects=len(chosen.anew),
            lines=sum(item.lines for item in chosen.anew),
            with_rows=len(chosen.with_rows),
            lines_with_rows=sum(item.lines for item in chosen.with_rows),
            missing=tuple(item.url for item in chosen.missing),
            erased=len(chosen.erased),
            lines_of_erased=sum(item.lines for item in chosen.erased),
            is_folded=self._is_folded,
        )

    def _choose(self, *, begin: bool) -> _Chosen:
        anew: list[ReplayCandidate] = []
        missing: list[ReplayCandidate] = []
        with_rows: list[ReplayCandidate] = []
        erased: list[ReplayCandidate] = []
        for found in self._parts():
            part = [item for item in found if not item.may_hold_erased]
            erased += [item for item in found if item.may_hold_erased]
            alone = [item for item in part if not item.days]
            with_rows += [item for item in part if item.days]
            present = _present(self._context, alone)
            there = set(present)
            missing += [item for item in alone if item not in there]
            if begin and present:
                _begin_anew(self._context, present, self._table.version)
            anew += present
        return _Chosen(anew=anew, missing=missing, with_rows=with_rows, erased=erased)

    def _parts(self) -> Iterator[list[ReplayCandidate]]:
        above = 0
        while True:
            with self._context.database.begin() as connection:
                part = replays.load_candidates(
                    connection, self._table.table_id, self._table.version, self._reasons, above, _AT_ONCE
                )
            if not part:
                return
            above = part[-1].staging_object_id
            yield part

    def _to_rebuild(self, gone: Collection[int]) -> list[ReplayCandidate]:
        """Objects that have rows, and those without any of which a rebuild has found lines of other days since."""
        found = (item for part in self._parts() for item in part if item.days or item.other_dates)
        return [item for item in found if item.staging_object_id not in gone and not item.may_hold_erased]

    def _rebuild(self, gone: Collection[int]) -> list[RebuildReport]:
        """Rebuilds the days that objects have rows of, and then those that lines were found to be of.

        A day is rebuilt again only if lines of it were found since: each rebuild that changes something leaves fewer
        objects that are not read, or lines that wait, and one that changes nothing is not repeated.
        """
        reports: list[RebuildReport] = []
        over: set[date] = set()
        while days := self._next_days(over, gone):
            for day in days:
                if self._plan(day).obstacle:
                    over.add(day.date)
                    continue
                name = str(self._table.name)
                report = run_rebuild(
                    self._context, name, day=day.date, without_missing=self._without_missing, now=self._now
                )
                failpoint("replay.after_rebuild")
                reports.append(report)
                if report.errors or not report.changed:
                    over.add(day.date)
        return reports

    def _next_days(self, over: Collection[date], gone: Collection[int]) -> list[DayToRebuild]:
        """Those of rows first: reading their objects tells of which other days lines are."""
        found = self._to_rebuild(gone)
        behind = self._known(self._days_behind(found) - set(over))
        return behind or self._known(self._other_dates(found) - set(over))

    def _days_behind(self, items: Collection[ReplayCandidate]) -> set[date]:
        """The days that objects have rows of which were not read under the definition in force."""
        return {day for item in items if item.is_earlier for day in item.days}

    def _other_dates(self, items: Collection[ReplayCandidate]) -> set[date]:
        """The days that rebuilds have recorded of lines, or by which such lines are looked for where they have not."""
        unrecorded = [item for item in items if item.arrivals]
        arrivals = (days_of_arrival(self._table, arrival) for item in unrecorded for arrival in item.arrivals)
        return set[date]().union(*arrivals, *(item.days for item in unrecorded), *(item.other_dates for item in items))

    def _known(self, days: Collection[date]) -> list[DayToRebuild]:
        """Those of the days that a rebuild has anything of, in order; none of a log of changes: folded once."""
        if not days or self._is_folded:
            return []
        with self._context.database.begin() as connection:
            found = load_days(connection, self._table.table_id, min(days), max(days))
        return [day for day in found if day.date in days]

    def _plan(self, day: DayToRebuild) -> RebuildPlan:
        return plan_day(self._context, self._table, day, self._now)


def _present(context: StageContext, items: Sequence[ReplayCandidate]) -> list[ReplayCandidate]:
    """Those that are there as they were converted: one that is not would be given up, and its ledger with it."""

    def is_there(item: ReplayCandidate) -> bool:
        try:
            found = context.stores.head(item.bucket, item.key)
        except ObjectMissing:
            return False
        return found.content_length == item.content_length and item.etag in (None, found.etag)

    with ThreadPoolExecutor(_LOOKS) as pool:
        return [item for item, there in zip(items, pool.map(is_there, items), strict=True) if there]


def _begin_anew(context: StageContext, items: Sequence[ReplayCandidate], version: int) -> None:
    """One transaction: a death in it begins nothing; after it, the next batch reads them."""
    with context.database.begin() as connection:
        replays.begin_anew(connection, [item.staging_object_id for item in items], version)
        failpoint("replay.in_begin")
    failpoint("replay.after_begin")
