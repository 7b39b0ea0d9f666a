"""Checks of days: merges, closing and catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_queue, merge_ranges, small_objects
from prism_assets.metadata.files.merge_queue import ParkedJob
from prism_assets.metadata.files.merge_ranges import RangeSizes
from prism_assets.metadata.files.small_objects import Unmerged
from prism_assets.stages.catalog.differences import Comparison, compare_catalogs
from prism_assets.stages.checks.outcomes import SHOWN, Check, CheckOutcome, Figures, failed, few, hours, mb, passed
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.days import find_day
from prism_assets.stages.findings.subject import Look

OBJECT_SIZES = "object_sizes"
UNMERGED_AGE = "unmerged_age"
CLOSING_BLOCKED = "closing_blocked"
CATALOG_AGREES = "catalog_agrees"

_RECENT = timedelta(days=14)
_Fact = TypeVar("_Fact", RangeSizes, Unmerged, ParkedJob, Partition)


def check_object_sizes(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether closed days have several merged objects, and one is too small."""
    since = (request.now - _RECENT).date()
    with context.database.begin() as connection:
        found = _by_table(merge_ranges.range_sizes(connection, request.ids, since))
    return [_judge_sizes(table, found.get(table.table_id, ())) for table in request.tables]


def _judge_sizes(table: TableDefinition, days: Sequence[RangeSizes]) -> CheckOutcome:
    """A single object may be small, and so may an object of late rows alone, because it grows."""
    # Plans use estimated bytes in mebibytes. The check allows for errors of the estimate: its floor is in megabytes.
    floor = table.merge.floor_bytes * 1_000_000 // (1 << 20)
    small = [
        (item.date, min(judged))
        for item in days
        if len(item.sizes) > 1
        and (judged := item.sizes[:-1] if item.last_is_late else item.sizes)
        and min(judged) < floor
    ]
    sizes = [size for item in days for size in item.sizes]
    figures: Figures = {
        "closed days": len(days),
        "merged objects": len(sizes),
        "smallest bytes": min(sizes, default=0),
        "largest bytes": max(sizes, default=0),
        "days with a small object": len(small),
    }
    if not small:
        sentence = (
            f"{counted(len(sizes), 'merged object')} of {counted(len(days), 'closed day')} in the last {_RECENT.days}"
        )
        return passed(table, OBJECT_SIZES, f"{sentence}; none is smaller than {mb(floor)} beside others", figures)
    shown = ", ".join(f"{day} ({mb(size)})" for day, size in small[-SHOWN:])
    return failed(
        table,
        OBJECT_SIZES,
        f"{counted(len(small), 'closed day has', 'closed days have')} several objects and one below {mb(floor)}: "
        f"{shown}. Queries read more objects "
        "than needed; raise merge.interval, or lower merge.target_bytes, so that objects fill up",
        figures,
    )


def _parked_sentence(job: ParkedJob) -> str:
    again = f"; it is tried again at {job.retry_time:%Y-%m-%d %H:%M}Z" if job.retry_time else ""
    return f"the merge of {job.date} is parked after {job.attempts} tries: {job.last_error}{again}"


def check_unmerged_age(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether objects of past days wait too long for a merge, and which merges are parked."""
    before = max((table.today(request.now) for table in request.tables), default=request.now.date())
    with context.database.begin() as connection:
        found = _by_table(small_objects.unmerged(connection, request.ids, before))
        parked = _by_table(merge_queue.parked_jobs(connection, request.ids))
    return [
        _judge_unmerged(
            table,
            [item for item in found.get(table.table_id, ()) if table.day_ends(item.date) <= request.now],
            parked.get(table.table_id, ()),
            request,
        )
        for table in request.tables
    ]


def _judge_unmerged(
    table: TableDefinition, waiting: Sequence[Unmerged], parked: Sequence[ParkedJob], request: CheckRequest
) -> CheckOutcome:
    """Objects wait from their arrival, or from the end of their day if later."""
    limit = request.limits_of(table).unmerged_hours
    ages = {item.date: hours(request.now - max(item.oldest, table.day_ends(item.date))) for item in waiting}
    objects = {item.date: item.objects for item in waiting}
    figures: Figures = {
        "unmerged objects": sum(objects.values()),
        "days": len(ages),
        "oldest in hours": round(max(ages.values(), default=0.0), 2),
        "parked merges": len(parked),
    }
    late = sorted((day for day, age in ages.items() if age > limit), key=lambda day: (-ages[day], day))
    if not late and not parked:
        one, many = "object of days that are over is", "objects of days that are over are"
        sentence = f"{counted(sum(objects.values()), one, many)} not merged, none for over {limit:g} h"
        return passed(table, UNMERGED_AGE, sentence, figures)
    parts = list(map(_parked_sentence, parked))
    parts += [
        f"{counted(objects[day], f'object of {day} is', f'objects of {day} are')} not merged for {ages[day]:.1f} h"
        for day in late
    ]
    return failed(
        table,
        UNMERGED_AGE,
        f"{few(parts)} (limit {limit:g} h). When the cause is mended, materialize merged for these days, "
        f"or run `prism merge --all --table {table.name}`",
        figures,
    )


@dataclass(frozen=True)
class _Unswitched:
    """A partition before its switch. The wait begins with the end of the day, or with a later first object."""

    partition: Partition
    since: datetime
    came_late: bool

    def hours(self, now: datetime) -> float:
        return hours(now - self.since)

    def sentence(self, now: datetime) -> str:
        start = "its first object came" if self.came_late else "its end"
        return f"{self.partition.date} is {self.partition.state.value} {self.hours(now):.1f} h after {start}"


def check_closing_blocked(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether a day waits too long for its close and switch, and the reasons.

    One statement for days before their switch, one for their first commits. Reasons are read for the oldest late days
    only.
    """
    outcomes = []
    with context.database.begin() as connection:
        late = _late(connection, request)
        look = Look(context=context, connection=connection, tables=request.tables, now=request.now)
        for table in request.tables:
            waiting = late.get(table.table_id, [])
            reasons = [
                f"{item.sentence(request.now)} and "
                f"{'; '.join(finding.text for finding in find_day(look, table, item.partition))}"
                for item in waiting[:SHOWN]
            ]
            limit = timedelta(hours=request.limits_of(table).closing_hours)
            outcomes.append(_judge_closing(table, waiting, reasons, limit, request.now))
    return outcomes


def _late(connection: Connection, request: CheckRequest) -> dict[int, list[_Unswitched]]:
    """Partitions beyond the limit of their table, by table. Late rows of an old day need their time, too."""
    tables = {table.table_id: table for table in request.tables}
    limits = {number: timedelta(hours=request.limits_of(table).closing_hours) for number, table in tables.items()}
    over = [
        item
        for item in partitions.load_pending(connection, request.ids)
        if not item.switched and tables[item.table_id].day_ends(item.date) + limits[item.table_id] < request.now
    ]
    commits = small_objects.first_commits(connection, [item.partition_id for item in over])
    late: dict[int, list[_Unswitched]] = {}
    for item in over:
        ends = tables[item.table_id].day_ends(item.date)
        since = max(ends, commits.get(item.partition_id, ends))
        if since + limits[item.table_id] < request.now:
            late.setdefault(item.table_id, []).append(_Unswitched(item, since, since > ends))
    return late


def _judge_closing(
    table: TableDefinition, late: Sequence[_Unswitched], reasons: Sequence[str], limit: timedelta, now: datetime
) -> CheckOutcome:
    oldest = max((item.hours(now) for item in late), default=0.0)
    figures: Figures = {"days that wait": len(late), "longest in hours": round(oldest, 2)}
    if not late:
        sentence = f"no day waits longer than {hours(limit):g} h to be closed and switched"
        return passed(table, CLOSING_BLOCKED, sentence, figures)
    more = f"; and {len(late) - len(reasons)} more" if len(late) > len(reasons) else ""
    return failed(
        table,
        CLOSING_BLOCKED,
        f"{counted(len(late), 'day waits', 'days wait')} longer than {hours(limit):g} h: {'. '.join(reasons)}{more}. "
        f"`prism status --table {table.name}` shows all",
        figures,
    )


def check_catalog_agrees(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether catalogs send readers to the recorded places: one statement for all tables, then one call for each.

    Differences are read a second time, because a run may have published in between.
    """
    found = _compare(context, request, request.tables)
    again = [table for table in request.tables if found[table.table_id].differences]
    if again:
        found |= _compare(context, request, again)
    return [_judge_catalog(table, found[table.table_id]) for table in request.tables]


def _compare(context: StageContext, request: CheckRequest, tables: Sequence[TableDefinition]) -> dict[int, Comparison]:
    since = (request.now - _RECENT).date()
    with context.database.begin() as connection:
        published = _by_table(partitions.published_since(connection, [table.table_id for table in tables], since))
    return compare_catalogs(context, tables, published)


def _judge_catalog(table: TableDefinition, compared: Comparison) -> CheckOutcome:
    days, differences = compared.published, compared.differences
    figures: Figures = {"days": days, "days that differ": len(differences)}
    if not differences:
        recent = f"of the last {_RECENT.days}"
        shown = counted(days, f"published day {recent} is", f"published days {recent} are")
        sentence = f"{shown} in the catalog as recorded"
        return passed(table, CATALOG_AGREES, sentence, figures)
    parts = [
        f"{item.date} is at {item.shown}, not at {item.recorded}" if item.shown else f"{item.date} is missing"
        for item in differences
    ]
    return failed(
        table,
        CATALOG_AGREES,
        f"the catalog differs from what was published for {len(differences)} of {counted(days, 'day')}: {few(parts)}. "
        f"Readers may see too little; `prism catalog --republish --table {table.name}` mends it",
        figures,
    )


def _by_table(found: Iterable[_Fact]) -> Mapping[int, Sequence[_Fact]]:
    groups: dict[int, list[_Fact]] = {}
    for item in found:
        groups.setdefault(item.table_id, []).append(item)
    return groups


CHECKS = (
    Check(
        name=OBJECT_SIZES,
        asset="merged",
        about="Closed days have one merged object, or several that are big enough.",
        evaluate=check_object_sizes,
    ),
    Check(
        name=UNMERGED_AGE,
        asset="merged",
        about="Objects of past days do not wait too long for their merge.",
        evaluate=check_unmerged_age,
    ),
    Check(
        name=CLOSING_BLOCKED,
        asset="catalog",
        about="No day waits too long after its end to be closed and switched.",
        evaluate=check_closing_blocked,
    ),
    Check(
        name=CATALOG_AGREES,
        asset="catalog",
        about="The catalog shows each day at the location recorded in PostgreSQL.",
        evaluate=check_catalog_agrees,
        is_error=True,
        asks_catalog=True,
    ),
)
