"""Turns work into run requests: one a time zone, for all its tables at once, without a run key.

A run key per table and day would drop repeats silently; what keeps requests apart is that work in a run is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone

from dagster import DagsterInstance, RunRequest, SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import DAY_TAG, PRIORITY_TAG, STAGE_TAG, Stage, asset_key, daily, has_day, table_of
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource
from prism_assets.defs.sensors.in_flight import busy_tables, queued_tables, resting_tables
from prism_assets.domain.errors import PrismError
from prism_assets.stages.context import StageContext

Tick = Callable[[StageContext, SensorEvaluationContext, Location], SensorResult]


def run_tick(
    context: SensorEvaluationContext, platform: PlatformResource, location: Location, tick: Tick
) -> SensorResult:
    """Runs a tick; whatever is not there, settings or servers, becomes the reason why nothing was requested."""
    try:
        with platform.open(location, context.log.info, context.log.warning) as stages:
            return tick(stages, context, location)
    except PrismError as error:
        return SensorResult(skip_reason=SkipReason(str(error)), cursor=context.cursor)


@dataclass(frozen=True)
class Demand:
    """Work of one stage: the days that wait, by table. The priority is that of the stage unless one is given."""

    stage: Stage
    days: Mapping[str, Collection[date]]
    priority: int | None = None


@dataclass(frozen=True)
class Answer:
    """What is requested, and the sentence about the rest. `asked` are the tables that are in a request."""

    requests: tuple[RunRequest, ...]
    asked: frozenset[str]
    rest: str


def answer(demand: Demand, location: Location, instance: DagsterInstance) -> Answer:
    """Requests runs for what waits and is in no run yet.

    While a run of a zone waits for its turn, no other is requested there: a run costs a process, whatever the number
    of its tables, so when runs cannot keep up they must grow and not multiply.
    """
    busy = busy_tables(instance, demand.stage) if demand.days else set()
    queued = queued_tables(instance, demand.stage) if demand.days else set()
    resting = resting_tables(instance, demand.stage) - busy if demand.days else set()
    known = set(location.names())
    free = {table for table in demand.days if table in known - busy - resting}
    behind = free & _behind(queued, location)
    requests = tuple(_requests(demand, free - behind, location))
    asked = frozenset(table_of(key) for request in requests for key in request.asset_selection or ())
    return Answer(requests, asked, _rest(demand, busy, resting, known, behind))


def _behind(queued: Collection[str], location: Location) -> set[str]:
    """All tables of the zones in which a run waits for its turn."""
    zones = [{str(table.name) for table in tables} for tables in location.zones().values()]
    return {table for names in zones if not names.isdisjoint(queued) for table in names}


def _requests(demand: Demand, free: Collection[str], location: Location) -> Iterator[RunRequest]:
    for zone, tables in location.zones().items():
        chosen = sorted(str(table.name) for table in tables if str(table.name) in free)
        if not chosen:
            continue
        today = tables[0].today(datetime.now(timezone.utc))
        days = daily(location.first_day, zone)
        waiting = {day for table in chosen for day in demand.days[table]}
        day = max((day for day in waiting if has_day(days, day)), default=today)
        if not has_day(days, day):
            continue  # the first day is still to come
        yield RunRequest(
            asset_selection=[asset_key(table, demand.stage.value) for table in chosen],
            # Dagster notes each check that it plans before a run may start, which takes longer than the run. The step
            # runs the checks all the same, and reports what fails.
            asset_check_keys=[],
            partition_key=day.isoformat(),
            tags={
                STAGE_TAG: demand.stage.value,
                DAY_TAG: day.isoformat(),
                PRIORITY_TAG: str(demand.stage.priority if demand.priority is None else demand.priority),
            },
        )


def _rest(
    demand: Demand,
    busy: Collection[str],
    resting: Collection[str],
    known: Collection[str],
    behind: Collection[str],
) -> str:
    waiting = set(demand.days)
    parts = [
        (len(waiting & set(busy)), "in a run that is queued or running"),
        (len(behind), "behind a run that waits for its turn"),
        (len(waiting & set(resting)), "paused after a failure"),
        (len(waiting - set(known)), "without a table file here"),
    ]
    return ", ".join(f"{count} tables {why}" for count, why in parts if count)
