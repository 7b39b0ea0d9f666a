"""The asset `merged`: merges small objects, and erases rows of days that have closed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timezone

from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.outcome import Facts, Outcome, RunOrder
from prism_assets.defs.assets.reported_positions import read_positions
from prism_assets.defs.keys import Stage
from prism_assets.defs.pictures import sizes_picture
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.metadata.files import merge_jobs
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.run import continue_erasures
from prism_assets.stages.findings.erasures import CLOSED_DAYS
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.merge.report import MergedPartition, MergeReport
from prism_assets.stages.merge.run import merge_one_by_one


def make_merged(context: StageContext, order: RunOrder) -> Outcome:
    """In a manual run, merges the requested day at once. For a sensor, merges everything due in its tables as one Spark
    job.

    Then erases the rows of closed days for which erasures waited. Merges come first: fewer objects are left to rewrite.
    """
    now = datetime.now(timezone.utc)
    ids = table_ids(context, order.tables)
    merged, problems = _merged(context, order, ids, now)
    unerased = _erase_closed_days(context, order, now)
    done = {(entry.table_id, entry.date): entry for entry in merged.merged}
    days = with_own_day(ids, order.day, done)
    positions = read_positions(context, Stage.MERGED, ids, days)
    figures = read_figures(context, ids, days)
    return Outcome(
        touched={
            (ids[table], day): {**figures[ids[table], day], **_facts(entry, merged)}
            for (table, day), entry in done.items()
        },
        own_day={name: figures[name, order.day] for name in ids.values()},
        problems=(*problems, *(problem for problem in unerased if problem.transient)),
        positions=positions,
        # Status and the check `erasures_proved` name these. Failing the run would pause the merges of the table.
        warnings=tuple(str(problem) for problem in unerased if not problem.transient),
    )


def _merged(
    context: StageContext, order: RunOrder, ids: Mapping[int, str], now: datetime
) -> tuple[MergeReport, tuple[Problem, ...]]:
    """Merges, and returns what was committed even if an error ends it early.

    A failed job waits for its next time. Retrying a sensor's run would find nothing due and succeed, so its problems
    are not transient. Manual runs ignore the schedule, and wait for jobs held by another worker.
    """
    started, report = time.monotonic(), MergeReport()
    day = None if order.by_sensor else order.day
    parts = merge_one_by_one(context, now=now, names=order.tables, day=day, ignore_schedule=not order.by_sensor)
    problems: tuple[Problem, ...] = ()
    try:
        for part in parts:
            report += part
    except PrismError as error:
        problems = tuple(Problem.of(error, table) for table in order.tables)
    failed = [replace(problem, transient=False) if order.by_sensor else problem for problem in report.problems]
    elsewhere = () if order.by_sensor or problems else _merged_elsewhere(context, order.day, ids)
    return replace(report, seconds=time.monotonic() - started), (*failed, *problems, *elsewhere)


def _erase_closed_days(context: StageContext, order: RunOrder, now: datetime) -> tuple[Problem, ...]:
    """Continues erasures of tables with a newly closed day. Returns the problems."""
    due = {item.table for item in read_findings(context, order.tables, [CLOSED_DAYS], now=now) if item.table}
    try:
        return continue_erasures(context, names=sorted(due), briefly=True).problems if due else ()
    except PrismError as error:
        return tuple(Problem.of(error, table) for table in sorted(due))


def _merged_elsewhere(context: StageContext, day: date, ids: Mapping[int, str]) -> tuple[Problem, ...]:
    with context.database.begin() as connection:
        running = merge_jobs.tables_merging(connection, list(ids), day)
    reason = "another worker merges this day"
    return tuple(Problem(table=ids[table], date=day, reason=reason, transient=True) for table in sorted(running))


def _facts(entry: MergedPartition, merged: MergeReport) -> Facts:
    return {
        "rows merged": entry.rows,
        "objects in": entry.objects_in,
        "bytes in": entry.bytes_in,
        "objects out": len(entry.sizes),
        "bytes out": sum(entry.sizes),
        "smallest object out": min(entry.sizes, default=0),
        "objects left behind": entry.left_behind,
        "plan": entry.plan,
        **({"object sizes": sizes_picture(entry.sizes_in, entry.sizes)} if entry.sizes else {}),
        "seconds of all jobs": round(merged.seconds, 2),
    }
