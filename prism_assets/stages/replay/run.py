"""Replay: quarantined lines that fit the current definition leave the quarantine and become rows.

Objects without any row restart, and the next batch of Stream converts them like all others: by its rules for late rows,
and with all their lines, because their lines in quarantine may have been blanked. The commit of their rows also
replaces their lines in quarantine; until then the quarantine stays unchanged.

For objects with rows the days are rebuilt, which replaces old rows and adds new ones in one step. The rebuild records
lines it finds for another day, and that day is rebuilt next. Each round asks PostgreSQL again, so the next replay
continues after a death.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime

from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.streams.reasons import OTHER_DAY
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata.intake import replays
from prism_assets.metadata.intake.replays import ReplayCandidate
from prism_assets.metadata.rewrites.rebuild_sources import DayToRebuild
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import check_not_held
from prism_assets.stages.rebuild.plan import arrival_of, days_of_arrival, load_days, plan_day
from prism_assets.stages.rebuild.report import RebuildPlan, RebuildReport
from prism_assets.stages.rebuild.routes import OBSTACLE, divided_otherwise, is_divided_otherwise
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.report import ReplayReport
from prism_assets.stages.stream.run import run_stream

_AT_ONCE = 1_000
_HEADS_AT_ONCE = 8


def run_replay(
    context: StageContext,
    name: str,
    *,
    reasons: Collection[str] | None = None,
    without_missing: bool = False,
    dry_run: bool = False,
    now: datetime,
) -> ReplayReport:
    """Replays a table's quarantine, for objects with lines of one of these reasons.

    Lines left by rebuilds for other days are always replayed, because nothing else picks them up. A repetition changes
    nothing: an object read under the current definition, without lines left for another day, is not read again.
    `without_missing` rebuilds days from the existing staging objects; otherwise a missing one keeps its days unchanged.
    """
    context.check_lake()
    (table,) = context.choose_logs([name])
    check_not_held(context, table)
    replay = _Replay(context, table, None if reasons is None else {*reasons, OTHER_DAY}, without_missing, now)
    return replay.preview() if dry_run else replay.run()


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Objects with lines that may become rows."""

    to_restart: Sequence[ReplayCandidate]
    """Without rows: they restart."""
    missing: Sequence[ReplayCandidate]
    """Without rows, and deleted or changed."""
    with_rows: Sequence[ReplayCandidate]
    erased: Sequence[ReplayCandidate]
    """Objects with erased lines stay unchanged: they still contain these lines, which may no longer match the rule."""
    divided_earlier: Sequence[ReplayCandidate]
    """Objects that the tables of their prefix divided by earlier routes or another format stay unchanged."""


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
        """Returns the plan of a replay. Days known only from the lines themselves are not included."""
        chosen = self._choose(begin=False)
        days = self._days_behind(chosen.with_rows) | self._other_dates(chosen.with_rows)
        return replace(self._report(chosen), dry_run=True, days=tuple(map(self._plan, self._known(days))))

    def run(self) -> ReplayReport:
        """Converts objects without rows, then rebuilds days until no further line can become a row."""
        chosen = self._choose(begin=True)
        streamed = run_stream(self._context, now=self._now, names=[str(self._table.name)])
        gone = {item.staging_object_id for item in chosen.missing}
        rebuilt = self._rebuild(gone)
        left = self._to_rebuild(gone)
        still = self._known(self._days_behind(left) | self._other_dates(left))
        numbers = [item.staging_object_id for item in (*chosen.to_restart, *chosen.with_rows)]
        with self._context.database.begin() as connection:
            rows = replays.count_rows(connection, numbers)
            stay = {item.staging_object_id for item in (*left, *chosen.erased)}
            lines = replays.load_left(connection, {*numbers, *stay})
        before = sum(item.rows for item in (*chosen.to_restart, *chosen.with_rows))
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
            objects=len(chosen.to_restart),
            lines=sum(item.lines for item in chosen.to_restart),
            with_rows=len(chosen.with_rows),
            lines_with_rows=sum(item.lines for item in chosen.with_rows),
            missing=tuple(item.url for item in chosen.missing),
            erased=len(chosen.erased),
            lines_of_erased=sum(item.lines for item in chosen.erased),
            earlier_division=len(chosen.divided_earlier),
            lines_of_earlier_division=sum(item.lines for item in chosen.divided_earlier),
            is_folded=self._is_folded,
        )

    def _choose(self, *, begin: bool) -> _Chosen:
        to_restart: list[ReplayCandidate] = []
        missing: list[ReplayCandidate] = []
        with_rows: list[ReplayCandidate] = []
        erased: list[ReplayCandidate] = []
        divided_earlier: list[ReplayCandidate] = []
        for found in self._parts():
            others = self._divided_otherwise(found)
            divided_earlier += [item for item in found if item.staging_object_id in others]
            same = [item for item in found if item.staging_object_id not in others]
            part = [item for item in same if not item.may_hold_erased]
            erased += [item for item in same if item.may_hold_erased]
            alone = [item for item in part if not item.days]
            with_rows += [item for item in part if item.days]
            present = _present(self._context, alone)
            there = set(present)
            missing += [item for item in alone if item not in there]
            if begin and present:
                _restart(self._context, present, self._table.version)
            to_restart += present
        return _Chosen(
            to_restart=to_restart,
            missing=missing,
            with_rows=with_rows,
            erased=erased,
            divided_earlier=divided_earlier,
        )

    def _divided_otherwise(self, items: Sequence[ReplayCandidate]) -> set[int]:
        with self._context.database.begin() as connection:
            read = [(item.staging_object_id, item.definition_version) for item in items]
            return divided_otherwise(connection, self._table, read)

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

    def _to_rebuild(self, gone: Set[int]) -> list[ReplayCandidate]:
        """Returns objects with rows, and objects without rows for which a rebuild has found lines of other days."""
        left = []
        for part in self._parts():
            passed_over = gone | self._divided_otherwise(part)
            found = (item for item in part if item.days or item.other_dates)
            left += [item for item in found if item.staging_object_id not in passed_over and not item.may_hold_erased]
        return left

    def _rebuild(self, gone: Set[int]) -> list[RebuildReport]:
        """Rebuilds the days of the objects' rows, then the days found for their lines.

        A day is rebuilt again only after new lines were found for it. Each rebuild with a change leaves fewer unread
        objects or waiting lines, and one without a change is not repeated, so the loop ends.
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

    def _next_days(self, over: Collection[date], gone: Set[int]) -> list[DayToRebuild]:
        """Returns days of rows first, because reading their objects shows the other days of their lines."""
        found = self._to_rebuild(gone)
        behind = self._known(self._days_behind(found) - set(over))
        return behind or self._known(self._other_dates(found) - set(over))

    def _days_behind(self, items: Collection[ReplayCandidate]) -> set[date]:
        """Returns the days of rows not read under the current definition."""
        return {day for item in items if item.is_earlier for day in item.days}

    def _other_dates(self, items: Collection[ReplayCandidate]) -> set[date]:
        """Returns the days recorded by rebuilds for lines. For lines without a record, the days of arrival."""
        unrecorded = [item for item in items if item.arrivals]
        arrivals = (days_of_arrival(self._table, arrival) for item in unrecorded for arrival in item.arrivals)
        return set[date]().union(*arrivals, *(item.days for item in unrecorded), *(item.other_dates for item in items))

    def _known(self, days: Collection[date]) -> list[DayToRebuild]:
        """Returns the days a rebuild has anything of, in order. None of a log of changes, because changes are folded
        once.
        """
        if not days or self._is_folded:
            return []
        with self._context.database.begin() as connection:
            found = load_days(connection, self._table.table_id, min(days), max(days))
        return [day for day in found if day.date in days]

    def _plan(self, day: DayToRebuild) -> RebuildPlan:
        plan = plan_day(self._context, self._table, day, self._now)
        with self._context.database.begin() as connection:
            arrival = arrival_of(self._table, day.date)
            if plan.obstacle is None and is_divided_otherwise(connection, self._table, day, arrival):
                return replace(plan, obstacle=OBSTACLE)
        return plan


def _present(context: StageContext, items: Sequence[ReplayCandidate]) -> list[ReplayCandidate]:
    """Returns objects still as converted. A changed one would be given up, and its ledger lost."""

    def is_there(item: ReplayCandidate) -> bool:
        try:
            found = context.stores.head(item.bucket, item.key)
        except ObjectMissing:
            return False
        return found.content_length == item.content_length and item.etag in (None, found.etag)

    with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
        return [item for item, there in zip(items, pool.map(is_there, items), strict=True) if there]


def _restart(context: StageContext, items: Sequence[ReplayCandidate], version: int) -> None:
    """One transaction: a death in it restarts nothing. After it, the next batch reads the objects."""
    with context.database.begin() as connection:
        replays.restart(connection, [item.staging_object_id for item in items], version)
        failpoint("replay.in_begin")
    failpoint("replay.after_begin")
