"""runless_materializations: reports partitions to Dagster that changed outside of it, for example by `prism`.

Runs of Dagster report their own changes, and note their position in PostgreSQL. This sensor reports the others once.
Its cursor has the last reports. Dagster stores the cursor after the events, and the next tick notes the reports in
PostgreSQL. A death in between repeats the reports.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone

from dagster import (
    AssetMaterialization,
    DagsterInstance,
    DagsterRunStatus,
    RunsFilter,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from prism_assets.defs.assets.figures import read_figures
from prism_assets.defs.keys import Stage, asset_key, daily, has_day, part_of
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.in_flight import works_for_tables
from prism_assets.domain.tables.accepted import DateRange
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days.materializations import Position, Unreported, load_unreported, record_reported
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

_PARTITIONS = 100
_RUNS = 200
_RUNNING = (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)
_NOTE = {"told by": "the sensor runless_materializations: no run of Dagster told it under this key"}

News = Sequence[tuple[Unreported, Sequence[Stage]]]
"""Partitions, with the stages whose asset is ahead of the last report."""


@dataclass(frozen=True)
class _LastTick:
    """The last tick's reports for an installation, and its last partition."""

    installation_id: str
    positions: tuple[Position, ...] = ()
    last: int | None = None

    @classmethod
    def read(cls, cursor: str | None, installation_id: str) -> _LastTick:
        """Reads a cursor. One of another form or installation counts as empty."""
        try:
            document = json.loads(cursor or "{}")
            told = tuple(Position(**item) for item in document["positions"])
            found = cls(document["installation_id"], told, document["last"])
        except (ValueError, TypeError, KeyError):
            return cls(installation_id)
        return found if found.installation_id == installation_id else cls(installation_id)

    def write(self) -> str:
        """Returns the cursor."""
        return json.dumps(asdict(self))


def runless_materializations(
    stages: StageContext, context: SensorEvaluationContext, location: Location, _deadline: Deadline
) -> SensorResult:
    """Reports partitions changed outside of Dagster, a hundred per tick, in turn."""
    told = _LastTick.read(context.cursor, stages.installation.installation_id)
    known = set(location.names())
    tables = {table.table_id: table for table in stages.choose_tables(None) if str(table.name) in known}
    idle = _idle(location, tables.values(), context.instance)
    with stages.database.begin() as connection:
        record_reported(connection, told.positions)
        found = load_unreported(connection, idle, _days(location, tables.values()), told.last, _PARTITIONS)
    news = [(item, [stage for stage in _ahead(item) if item.table_id in idle[stage.value]]) for item in found]
    told_now = list(_within_partitions(location, tables, news))
    events = list(_events(stages, tables, told_now))
    last = found[-1].position.partition_id if len(found) == _PARTITIONS else None
    return SensorResult(
        asset_events=events,
        skip_reason=SkipReason(_sentence(events, goes_on=last is not None)),
        cursor=_LastTick(told.installation_id, tuple(_positions(told_now)), last).write(),
    )


def _idle(location: Location, tables: Collection[TableDefinition], instance: DagsterInstance) -> dict[str, set[int]]:
    """Returns by part the ids of tables with the asset and no running run of it, because such a run reports its own
    work.
    """
    records = instance.get_run_records(filters=RunsFilter(statuses=list(_RUNNING)), limit=_RUNS)
    runs = [record.dagster_run for record in records if works_for_tables(record.dagster_run)]
    busy = {key for run in runs for key in run.asset_selection or ()}
    ids = {str(table.name): table.table_id for table in tables}
    return {
        stage.value: {
            ids[name] for name in location.names(stage) if name in ids and asset_key(name, stage.value) not in busy
        }
        for stage in Stage
    }


def _days(location: Location, tables: Collection[TableDefinition]) -> DateRange:
    """Returns the days that are partitions in any time zone."""
    now = datetime.now(timezone.utc)
    newest = max((table.today(now) for table in tables), default=now.date() + timedelta(days=1))
    return DateRange(location.first_day, newest)


def _ahead(item: Unreported) -> list[Stage]:
    """Returns the stages whose asset is ahead of the last report."""
    return [stage for stage in Stage if getattr(item.position, stage.value) > getattr(item.reported, stage.value)]


def _within_partitions(
    location: Location, tables: Mapping[int, TableDefinition], news: News
) -> Iterator[tuple[Unreported, Sequence[Stage]]]:
    """Leaves out days not yet partitions in their table's zone. They are reported later."""
    for item, stages in news:
        if has_day(daily(location.first_day, tables[item.table_id].timezone), item.date):
            yield item, stages


def _events(context: StageContext, tables: Mapping[int, TableDefinition], news: News) -> Iterator[AssetMaterialization]:
    names = {table_id: str(table.name) for table_id, table in tables.items()}
    figures = read_figures(context, names, {(item.table_id, item.date) for item, _ in news})
    for item, stages in news:
        name, day = names[item.table_id], item.date
        for stage in stages:
            metadata = {**figures[name, day], **_NOTE}
            yield AssetMaterialization(asset_key(name, stage.value), partition=day.isoformat(), metadata=metadata)


def _positions(news: News) -> Iterator[Position]:
    """Returns Dagster's position once the events of this tick are stored."""
    for item, stages in news:
        reached = {stage.value: getattr(item.position, stage.value) for stage in stages}
        yield Position(partition_id=item.position.partition_id, **reached)


def _sentence(events: Sequence[AssetMaterialization], *, goes_on: bool) -> str:
    if not events:
        return "nothing changed outside of Dagster"
    counts = Counter(part_of(event.asset_key) for event in events)
    told = ", ".join(f"{counts[stage.value]} of {stage.value}" for stage in Stage if counts[stage.value])
    return f"told of work outside of Dagster: {told}{'; the next tick goes on' if goes_on else ''}"
