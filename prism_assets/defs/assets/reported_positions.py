"""Notes how far a run told Dagster what partitions hold, so that nothing of it is told again without a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date

from prism_assets.defs.assets.figures import with_own_day
from prism_assets.defs.assets.outcome import Outcome, Task
from prism_assets.metadata.materializations import Position, load_positions, record_reported
from prism_assets.stages.context import StageContext

Positions = Mapping[tuple[str, date], Position]


def read_positions(stages: StageContext, task: Task, outcome: Outcome) -> Positions:
    """How far the assets of the stage have come, by table and day: read after the work, and before it is told."""
    names = {*task.tables, *(table for table, _ in outcome.touched)}
    ids = {item.table_id: str(item.name) for item in stages.choose_tables(None) if str(item.name) in names}
    of_name = {name: table_id for table_id, name in ids.items()}
    wanted = with_own_day(ids, task.day, {(of_name[table], day) for table, day in outcome.touched})
    with stages.database.begin() as connection:
        found = load_positions(connection, wanted)
    part = task.stage.value
    return {
        (ids[table_id], day): Position(partition_id=position.partition_id, **{part: getattr(position, part)})
        for (table_id, day), position in found.items()
    }


def record(stages: StageContext, positions: Positions, told: Collection[tuple[str, date]]) -> None:
    """Notes it. A death before this tells it once more, by the sensor `runless_materializations`."""
    with stages.database.begin() as connection:
        record_reported(connection, [positions[item] for item in told if item in positions])
