"""Notes how far a run told Dagster what partitions hold, so that nothing of it is told again without a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import date

from prism_assets.defs.keys import Stage
from prism_assets.domain.errors import PrismError
from prism_assets.metadata.materializations import Position, load_positions, record_reported
from prism_assets.stages.context import StageContext

Positions = Mapping[tuple[str, date], Position]


def read_positions(
    stages: StageContext, stage: Stage, ids: Mapping[int, str], wanted: Collection[tuple[int, date]]
) -> Positions:
    """How far the assets of a stage have come, by table and day.

    To be read after the work and before the figures: what a command changes in between is then told once more.
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
    """Notes it. Where that fails, or a death comes first, `runless_materializations` tells it once more."""
    try:
        with stages.database.begin() as connection:
            record_reported(connection, [positions[item] for item in told if item in positions])
    except PrismError as error:
        warn(f"what this run told is told again by the sensor runless_materializations: {error}")
