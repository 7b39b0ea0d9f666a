"""Rebuild: makes rows of a table again, for logs day by day (`day.py`), for a join table as a whole (`records.py`)."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date, datetime

from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import check_not_held
from prism_assets.stages.rebuild.day import rebuild_day
from prism_assets.stages.rebuild.plan import find_days, plan_day
from prism_assets.stages.rebuild.records import plan_records, rebuild_records
from prism_assets.stages.rebuild.report import RebuildPlan, RebuildReport, RecordsPlan


def run_rebuild(
    context: StageContext,
    name: str,
    *,
    day: date | None = None,
    since: date | None = None,
    without_missing: bool = False,
    now: datetime,
) -> RebuildReport:
    """Rebuilds a day of a table, the days from `since` to it, or a whole join table. A repetition changes nothing.

    With `without_missing` rows of deleted staging objects stay as they are; otherwise a day with any does. A failure
    stops nothing else; the report has the reason.
    """
    started = time.monotonic()
    table = _choose(context, name, day, since, without_missing)
    if day is None:
        report = _rebuild_join_table(context, table, now)
    else:
        report = _rebuild_days(context, table, day, since, without_missing, now)
    return replace(report, seconds=time.monotonic() - started)


def preview_days(
    context: StageContext, name: str, *, day: date, since: date | None = None, now: datetime
) -> list[RebuildPlan]:
    """Returns the plans of a rebuild by day. Changes nothing, and reads no staging object."""
    table = _choose(context, name, day, since)
    return [plan_day(context, table, item, now) for item in find_days(context, table, day=day, since=since)]


def preview_records(
    context: StageContext, name: str, *, since: date | None = None, without_missing: bool = False
) -> list[RecordsPlan]:
    """Returns the plan of a join table's rebuild. Makes all records, writes none, and changes nothing."""
    return [plan_records(context, _choose(context, name, None, since, without_missing))]


def _choose(
    context: StageContext, name: str, day: date | None, since: date | None, without_missing: bool = False
) -> TableDefinition:
    """Returns the table. Raises WrongUse for a wrong way to rebuild: logs by days, join tables as a whole, their logs
    never.
    """
    context.check_lake()
    table = context.choose_tables([name])[0]
    check_not_held(context, table)
    if table.change_log is not None:
        raise WrongUse(
            f"{name} belongs to a join table, whose changes are folded into records once, and no rebuild makes "
            "other changes: send them again, as new objects; `prism rebuild` of the join table makes its records again"
        )
    if table.join is None and day is None:
        raise WrongUse(f"{name} is rebuilt day by day: say which with --date")
    if table.join is not None and (day or since):
        raise WrongUse(
            f"{name} is a join table, whose records are made of changes of several days: it is rebuilt as a "
            "whole, without --date and --since"
        )
    if table.join is not None and without_missing:
        raise WrongUse(
            f"{name} is a join table, whose records are made of its changes and not of staging objects: it is rebuilt "
            "without --without-missing"
        )
    return table


def _rebuild_days(
    context: StageContext,
    table: TableDefinition,
    day: date,
    since: date | None,
    without_missing: bool,
    now: datetime,
) -> RebuildReport:
    """Rebuilds one day after another. A failed day stops no other."""
    report = RebuildReport(table=str(table.name))
    found = find_days(context, table, day=day, since=since)
    context.stores.check_bucket(context.lake.bucket)
    for item in found:
        try:
            done = rebuild_day(context, table, item, without_missing=without_missing, now=now)
        except PrismError as error:
            problem = Problem.of(error, report.table, item.date)
            report = replace(report, problems=(*report.problems, problem))
        else:
            context.progress(f"rebuild: {done}")
            report = replace(report, days=(*report.days, done))
    return report


def _rebuild_join_table(context: StageContext, table: TableDefinition, now: datetime) -> RebuildReport:
    report = RebuildReport(table=str(table.name))
    context.stores.check_bucket(context.lake.bucket)
    try:
        done = rebuild_records(context, table, now)
    except PrismError as error:
        return replace(report, problems=(Problem.of(error, report.table),))
    context.progress(f"rebuild: {done}")
    return replace(report, records=(done,))
