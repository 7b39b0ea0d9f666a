"""runless_materializations: tells Dagster of partitions that changed outside of it, as by the `prism` command.

What runs of Dagster did they tell themselves, and note in PostgreSQL how far. The rest is told here, once: what a tick
told stands in its cursor, which Dagster stores behind the events, and is noted by the next tick. A death between the
two tells it once more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict

from dagster import AssetMaterialization, SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.assets.figures import read_figures
from prism_assets.defs.keys import Stage, asset_key, daily, has_day, part_of
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.in_flight import find_in_flight
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata.materializations import Position, Unreported, load_unreported, record_reported
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

_PARTITIONS = 100
_MADE_BY = {"made by": "a command, outside of Dagster"}


def runless_materializations(
    stages: StageContext, context: SensorEvaluationContext, location: Location, _deadline: Deadline
) -> SensorResult:
    """Tells of partitions that changed outside of Dagster, a hundred of them a tick."""
    told = _read(context.cursor)
    definitions = {str(table.name): table for table in stages.choose_tables(None)}
    tables = {table.table_id: table for name, table in definitions.items() if name in location.names()}
    by_asset = {stage.value: _idle(tables.values(), context, stage) for stage in Stage}
    with stages.database.begin() as connection:
        record_reported(connection, told)
        untold = load_unreported(connection, by_asset, _PARTITIONS)
    news = [(item, [stage for stage in _stages(item) if item.table_id in by_asset[stage.value]]) for item in untold]
    events = list(_events(stages, location, tables, news))
    return SensorResult(
        asset_events=events,
        skip_reason=SkipReason(_sentence(events, len(untold))),
        cursor=_write(_told(news)),
    )


def _idle(tables: Collection[TableDefinition], context: SensorEvaluationContext, stage: Stage) -> set[int]:
    """The ids of tables that no run of the stage is at: such a run will tell what it does."""
    running = find_in_flight(context.instance, stage).running
    return {table.table_id for table in tables if str(table.name) not in running}


def _stages(item: Unreported) -> list[Stage]:
    """The stages whose asset has come further than was told."""
    return [stage for stage in Stage if getattr(item.position, stage.value) > getattr(item.reported, stage.value)]


def _events(
    stages: StageContext,
    location: Location,
    tables: dict[int, TableDefinition],
    news: Sequence[tuple[Unreported, Sequence[Stage]]],
) -> Iterator[AssetMaterialization]:
    names = {table_id: str(table.name) for table_id, table in tables.items()}
    figures = read_figures(stages, names, {(item.table_id, item.date) for item, _ in news})
    for item, come_further in news:
        name = names[item.table_id]
        if not has_day(daily(location.first_day, tables[item.table_id].timezone), item.date):
            continue
        metadata = {**figures[name, item.date], **_MADE_BY}
        for stage in come_further:
            yield AssetMaterialization(asset_key(name, stage.value), partition=item.date.isoformat(), metadata=metadata)


def _told(news: Sequence[tuple[Unreported, Sequence[Stage]]]) -> list[Position]:
    """How far Dagster knows when the events of this tick are stored."""
    return [
        Position(
            partition_id=item.position.partition_id,
            **{stage.value: getattr(item.position, stage.value) for stage in come_further},
        )
        for item, come_further in news
    ]


def _read(cursor: str | None) -> list[Position]:
    return [Position(**item) for item in json.loads(cursor)] if cursor else []


def _write(told: Sequence[Position]) -> str:
    return json.dumps([asdict(position) for position in told])


def _sentence(events: Sequence[AssetMaterialization], partitions: int) -> str:
    if not events:
        return "nothing changed outside of Dagster"
    counts = Counter(part_of(event.asset_key) for event in events)
    told = ", ".join(f"{counts[stage.value]} of {stage.value}" for stage in Stage if counts[stage.value])
    more = "; the next tick goes on" if partitions == _PARTITIONS else ""
    return f"told of work outside of Dagster: {told}{more}"
