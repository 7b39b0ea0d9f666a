"""`prism history`: registers old objects of a table, and converts them after all other objects, day by day."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.failpoints import failpoint
from prism_assets.metadata.intake import claims, history, stream_scans
from prism_assets.metadata.intake.claims import HISTORY
from prism_assets.metadata.intake.history import Cancelled, DatedObject, Registered, Rest
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.metadata.leases import LeaseKind, in_brackets
from prism_assets.stages.context import StageContext
from prism_assets.stages.history.plan import (
    HistoryPlan,
    Listed,
    choose_days,
    choose_streams,
    choose_table,
    pages,
)
from prism_assets.stages.leases import find_holder, leased, takeover_seconds
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.report import StreamReport
from prism_assets.stages.stream.run import run_batch, sound_ids
from prism_assets.stages.stream.uploads import remove_abandoned

_LEAST_OBJECTS, _LEAST_BYTES = 256, 64 << 20
"""The size of a batch on small engines. A batch on a large one is a single wave: one task for each slot."""
_OBJECTS_PER_SLOT = 16
_PAUSE_SECONDS = 0.2
PATIENCE_SECONDS = 60.0
"""How long a batch waits while objects of today are pending. Then it begins, so that no backlog stops a history."""


@dataclass(frozen=True, kw_only=True)
class HistoryReport:
    """Results of one run."""

    table: str
    registered: int = 0
    set_back: int = 0
    """Objects that waited for Stream, and wait for a history now."""
    stream: StreamReport = field(default_factory=StreamReport)
    rest: Rest | None = None
    errors: tuple[str, ...] = ()

    def describe(self) -> str:
        """Returns the figures in a sentence."""
        parts = [f"{counted(self.registered, 'object')} registered"] if self.registered else []
        parts += [f"{counted(self.set_back, 'waiting object')} set back"] if self.set_back else []
        done = self.stream
        parts.append(f"{counted(done.objects, 'object')} converted to {counted(done.rows_out, 'row')}")
        parts += [f"{done.quarantined:,} lines quarantined"] if done.quarantined else []
        if self.rest is None:
            parts.append("the history is complete")
        else:
            parts.append(f"{counted(self.rest.objects, 'object')} left, from {self.rest.first} to {self.rest.last}")
        return "; ".join(parts)


def preview_history(context: StageContext, name: str, first: date, last: date | None, now: datetime) -> HistoryPlan:
    """Returns the plan of a history. Lists the streams, and changes nothing."""
    table = choose_table(context, name)
    chosen = choose_streams(context, table)
    days, listed, known = choose_days(table, first, last, now), Listed(), 0
    for stream in chosen:
        for page in pages(context, stream, days, listed):
            with context.database.begin() as connection:
                known += history.count_known(connection, stream.stream_id, [item.found for item in page])
    return HistoryPlan(table=name, days=listed.days, known=known, undated=listed.undated, left_out=listed.left_out)


def run_history(
    context: StageContext,
    name: str,
    *,
    first: date | None = None,
    last: date | None = None,
    clock: Callable[[], datetime],
    patience_seconds: float = PATIENCE_SECONDS,
    wait_seconds: float | None = None,
) -> HistoryReport:
    """Registers the objects of the days from `first` to `last`, then converts all that wait, the oldest days first.

    Without `first` only goes on. `wait_seconds` is the time for an earlier run to end, by default as long as a dead one
    keeps its lease. A death leaves registered objects waiting, and a begun batch to Stream. A repetition
    registers nothing twice.
    """
    context.check_lake()
    table = choose_table(context, name)
    wait = takeover_seconds(context) if wait_seconds is None else wait_seconds
    with leased(context, LeaseKind.HISTORY, [table.table_id], wait) as held:
        if not held:
            holder = in_brackets(find_holder(context, LeaseKind.HISTORY, table.table_id))
            return HistoryReport(table=name, errors=(f"another run brings in the history of {name}{holder}",))
        report = HistoryReport(table=name)
        if first is not None:
            report = _register(context, report, first, last, clock())
        return _convert(context, table.table_id, report, clock, patience_seconds)


def cancel_history(context: StageContext, name: str) -> Cancelled:
    """Ends a history. Forgets its waiting objects where `since` leaves them out, and gives all others to Stream."""
    context.check_lake()
    table = choose_table(context, name)
    with context.database.begin() as connection:
        return history.cancel(connection, table.table_id)


def _register(
    context: StageContext, report: HistoryReport, first: date, last: date | None, now: datetime
) -> HistoryReport:
    table = choose_table(context, report.table)
    chosen = choose_streams(context, table)
    days, listed = choose_days(table, first, last, now), Listed()
    for stream in chosen:
        with context.database.begin() as connection:
            history.begin(connection, stream.stream_id, days)
        failpoint("history.after_begin")
        for page in pages(context, stream, days, listed):
            added = _register_page(context, stream, page, now)
            report = replace(
                report, registered=report.registered + added.new, set_back=report.set_back + added.set_back
            )
            context.progress(f"history: {counted(report.registered, 'object')} registered")
        with context.database.begin() as connection:
            history.finish(connection, stream.stream_id, days)
            stream_scans.forget_late(connection, stream.stream_id)
            failpoint("history.in_finish")
    return report


def _register_page(
    context: StageContext, stream: KnownStream, page: Sequence[DatedObject], now: datetime
) -> Registered:
    """Registers a page in one transaction. A death in it registers nothing, and the next run lists again."""
    with context.database.begin() as connection:
        added = history.register(connection, stream.stream_id, stream.table_id, page, now)
        failpoint("history.in_page")
    failpoint("history.after_page")
    return added


def _convert(
    context: StageContext,
    table_id: int,
    report: HistoryReport,
    clock: Callable[[], datetime],
    patience_seconds: float,
) -> HistoryReport:
    """Runs one small batch after another, while other objects do not wait."""
    context.stores.check_bucket(context.lake.bucket)
    total, problems = StreamReport(), list[Problem]()
    while True:
        table_ids, held = sound_ids(context, [report.table])
        if held:
            problems += held
            break
        _let_others_go_first(context, patience_seconds)
        plan = start_batch(_in_waves(context), table_ids, HISTORY)
        if plan is None:
            break
        try:
            done = run_batch(context, plan, clock())
        except LeaseLost as error:
            context.progress(f"history: {error}")
            continue
        total += replace(done, problems=(*done.problems, *remove_abandoned(context, [table_id])))
        context.progress(_progress(context, table_id, total))
    problems += total.problems
    rest, errors = _rest(context, table_id), [problem.reason for problem in problems]
    if rest and rest.waiting and not errors:
        errors.append(_why_left(context, rest))
    return replace(report, stream=total, rest=rest, errors=tuple(errors))


def _why_left(context: StageContext, rest: Rest) -> str:
    """Returns why a run ends before its history. Its last claim found no object."""
    with context.database.begin() as connection:
        is_paused = history.is_paused(connection, rest.table_id)
    left = counted(rest.waiting, "old object waits", "old objects wait")
    if is_paused:
        return f"{left}: the table takes in nothing while its columns flip; run it again when `prism status` says so"
    return f"{left}: another session holds them, or registered them just now; run it again"


def _let_others_go_first(context: StageContext, patience_seconds: float) -> None:
    """Waits while Stream or a live worker has objects to convert, of any table."""
    table_ids = [table.table_id for table in context.choose_logs(None)]
    end = time.monotonic() + patience_seconds
    while time.monotonic() < end:
        with context.database.begin() as connection:
            if not claims.has_pending(connection, table_ids):
                return
        time.sleep(_PAUSE_SECONDS)


def _in_waves(context: StageContext) -> StageContext:
    """Returns a context with small batches: a task of today then waits for one task of the history, and no more."""
    settings, slots = context.settings, context.engine.slots
    objects = min(settings.stream_max_objects, max(_LEAST_OBJECTS, slots * _OBJECTS_PER_SLOT))
    size = min(settings.stream_max_bytes, max(_LEAST_BYTES, slots * settings.task_bytes))
    limits = {"stream_max_objects": objects, "stream_max_bytes": size}
    return replace(context, settings=settings.model_copy(update=limits))


def _rest(context: StageContext, table_id: int) -> Rest | None:
    with context.database.begin() as connection:
        return next(iter(history.load_rest(connection, [table_id])), None)


def _progress(context: StageContext, table_id: int, total: StreamReport) -> str:
    rest = _rest(context, table_id)
    left = f", {rest.objects:,} left, now {rest.first}" if rest else ""
    return f"history: {counted(total.objects, 'object')}, {counted(total.rows_out, 'row')}{left}"
