"""Plans a rebuild of a day: the staging objects it reads again, and their tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition, new_day_obstacle, rebuild_obstacle
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.rebuild import DayOfObject, RebuildTask
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import merge_ranges
from prism_assets.metadata.intake import claims, quarantine
from prism_assets.metadata.rewrites import rebuild_sources
from prism_assets.metadata.rewrites.rebuild_sources import Arrival, DayToRebuild, SourceToRebuild
from prism_assets.metadata.rewrites.rebuilds import Rebuild
from prism_assets.stages.context import StageContext
from prism_assets.stages.rebuild.report import RebuildPlan
from prism_assets.stages.rebuild.routes import is_divided_otherwise
from prism_assets.stages.stream.source_tasks import SourceTasks


@dataclass(frozen=True, kw_only=True)
class RebuildPart:
    """Some staging objects of a day, at most as many as in a batch of Stream, with their tasks."""

    candidates: tuple[SourceToRebuild, ...]
    tasks: tuple[RebuildTask, ...]


def arrival_of(table: TableDefinition, day: date) -> Arrival:
    """Returns when objects with unrecorded lines of a day may have come: on this day or the next."""
    midnight = datetime.combine(day, datetime.min.time(), tzinfo=table.zone)
    return Arrival(first=midnight.astimezone(timezone.utc), last=table.day_ends(day + timedelta(days=1)))


def days_of_arrival(table: TableDefinition, came: datetime) -> set[date]:
    """Returns the days whose `arrival_of` includes a time: its day in the table's time zone, and the day before."""
    day = came.astimezone(table.zone).date()
    return {day - timedelta(days=1), day}


def load_days(connection: Connection, table_id: int, first: date, last: date) -> list[DayToRebuild]:
    """Returns the days in a period with rows, or with lines left for them by rebuilds of other days."""
    found: dict[date, Partition | None] = dict.fromkeys(
        rebuild_sources.find_other_dates(connection, table_id, first, last)
    )
    for partition in partitions.load_table_partitions(connection, table_id):
        if first <= partition.date <= last:
            found[partition.date] = partition
    return [DayToRebuild(table_id=table_id, date=day, partition=found[day]) for day in sorted(found)]


def find_days(context: StageContext, table: TableDefinition, *, day: date, since: date | None) -> list[DayToRebuild]:
    """Returns one day to rebuild, or the days from `since` up to it. Raises WrongUse if there is none."""
    first = day if since is None else since
    if first > day:
        raise WrongUse(f"--since {first} is after --date {day}: it names the first of the days up to --date")
    with context.database.begin() as connection:
        found = load_days(connection, table.table_id, first, day)
        found += _gained(connection, table, first, day, {item.date for item in found})
    if not found:
        days = f"{day}" if first == day else f"any day from {first} to {day}"
        raise WrongUse(f"{table.name} has no rows on {days}, and no lines wait for it: there is nothing to rebuild")
    return sorted(found, key=lambda item: item.date)


def _gained(
    connection: Connection, table: TableDefinition, first: date, last: date, known: Collection[date]
) -> list[DayToRebuild]:
    """Returns further days, whose lines changed routes may give to the table from others of its prefix."""
    dates = rebuild_sources.find_shared_dates(connection, table.table_id, first, last)
    days = (DayToRebuild(table_id=table.table_id, date=day, partition=None) for day in dates if day not in known)
    return [day for day in days if is_divided_otherwise(connection, table, day, arrival_of(table, day.date))]


def obstacle_of(connection: Connection, table: TableDefinition, day: DayToRebuild, now: datetime) -> str | None:
    """Returns the reason why a day cannot be rebuilt now, or None. Reads without locks."""
    known = erasures.load_erasures(connection, [table.table_id])
    open_erasures = sum(item.is_open for item in known)
    if day.partition is not None and not day.partition.is_waiting_for_rows:
        erased = rebuild_sources.count_contributors_with_erased(connection, day, table.version) if known else 0
        return rebuild_obstacle(
            day.partition,
            open_erasures=open_erasures,
            erased_objects=erased,
            archived_objects=merge_ranges.count_archived(connection, day.partition.partition_id),
        )
    oldest_kept = table.oldest_kept(now)
    return new_day_obstacle(
        is_over=table.day_ends(day.date) <= now,
        is_kept=oldest_kept is None or oldest_kept <= day.date,
        open_erasures=open_erasures,
    )


def plan_day(context: StageContext, table: TableDefinition, day: DayToRebuild, now: datetime) -> RebuildPlan:
    """Returns the plan of a day's rebuild. Changes nothing, and reads no staging object."""
    numbers = [day.partition.partition_id] if day.partition else []
    with context.database.begin() as connection:
        chain = merge_ranges.load_bounds(connection, numbers)
        totals = rebuild_sources.count(connection, day, table.version, arrival_of(table, day.date))
        obstacle = obstacle_of(connection, table, day, now)
    return RebuildPlan(
        table=str(table.name),
        date=day.date,
        version=table.version,
        candidates=totals,
        ranges=sum(len(chain.get(number, ())) for number in numbers),
        obstacle=obstacle,
    )


def next_part(
    context: StageContext, table: TableDefinition, day: DayToRebuild, rebuild: Rebuild, above: int | None
) -> RebuildPart | None:
    """Returns the next unconverted objects: with rows of the day above a small object's id, or without rows.

    `above` is the id, or None for objects without rows of the day.
    """
    most = context.batch_size.objects
    with context.database.begin() as connection:
        if above is not None:
            found = rebuild_sources.next_contributors(connection, rebuild, day, above, most)
        else:
            arrival = arrival_of(table, day.date)
            found = rebuild_sources.next_arrivals(connection, rebuild, day, arrival, most)
        if not found:
            return None
        numbers = [item.staging_object_id for item in found]
        # Read after the candidates: if a day changes in between, its object has changed since, which the commit finds.
        days = rebuild_sources.load_days(connection, numbers)
        quarantined = quarantine.load_keys(connection, numbers)
        items = claims.load_claimed(connection, numbers)
        rules = erasures.load_rules(connection, [table.table_id]).get(table.table_id, ())
        earlier = {number: _earlier(days.get(number, []), table) for number in numbers}
        sources = SourceTasks.load(
            connection, items.values(), {number: [table.version, *earlier[number]] for number in numbers}
        )

    def task(known: SourceToRebuild) -> RebuildTask:
        item = items[known.staging_object_id]
        source = replace(
            sources.task(item, frozenset([day.date]), table.version),
            rewrite_id=rebuild.rewrite_id,
            metric_columns=table.metric_columns,
            erasures=tuple(rule for rule in rules if rule.erasure_id <= rebuild.erasure_id),
        )
        return RebuildTask(
            source=source,
            date=day.date,
            recorded=tuple(days.get(item.staging_object_id, [])),
            definitions=tuple(sources.other(item, version) for version in earlier[item.staging_object_id]),
            lines_in=known.lines_in,
            quarantine_key=quarantined.get(item.staging_object_id),
        )

    return RebuildPart(candidates=tuple(found), tasks=tuple(map(task, found)))


def _earlier(recorded: Sequence[DayOfObject], table: TableDefinition) -> list[int]:
    """Returns the earlier definitions under which an object's rows were made."""
    return sorted({item.definition_version for item in recorded} - {table.version})
