"""Records how far a run has reported partitions to Dagster, so the sensor does not report them again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import date

from prism_assets.defs.keys import Stage
from prism_assets.domain.errors import PrismError
from prism_assets.metadata.days.materializations import Position, load_positions, record_reported
from prism_assets.stages.context import StageContext

Positions = Mapping[tuple[str, date], Position]


def read_positions(
    stages: StageContext, stage: Stage, ids: Mapping[int, str], wanted: Collection[tuple[int, date]]
) -> Positions:
    """Returns the positions of a stage's assets, by table and day.

    Call it after the work and before reading figures: changes in between are then reported once more.
    """
    with stages.database.begin() as connection:
        found = load_positions(connection, wanted)
    return {
        (ids[table_id], day): Position(
            partition_id=position.partition_id, **{stage.value: getattr(position, stage.value)}
        )
        for (table_id, day), position in found.items()
    }


def record(
    stages: StageContext, positions: Positions, told: Collection[tuple[str, date]], warn: Callable[[str], None]
) -> None:
    """Records the positions. After an error or a death, `runless_materializations` reports them once more."""
    try:
        with stages.database.begin() as connection:
            record_reported(connection, [positions[item] for item in told if item in positions])
    except PrismError as error:
        warn(f"the sensor runless_materializations will report this run's partitions again: {error}")
