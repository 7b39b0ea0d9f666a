"""The sensors by name. Each runs its tick over all tables of the code location."""

# Dagster reads the annotations of steps and sensors, so they are not postponed here.
from dagster import (
    AssetSelection,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from prism_assets.defs.keys import Stage, asset_key
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource
from prism_assets.defs.sensors.catalog_work import catalog_work
from prism_assets.defs.sensors.merges_due import merges_due
from prism_assets.defs.sensors.new_objects import new_objects
from prism_assets.defs.sensors.requests import Tick, run_tick


def build_sensors(location: Location) -> list[SensorDefinition]:
    """All sensors; none where there is no table, as a sensor must have a target."""
    if not location.tables:
        return []
    return [
        _build("new_objects", Stage.LIVE, new_objects, 10, location),
        _build("merges_due", Stage.MERGED, merges_due, 30, location),
        _build("catalog_work", Stage.CATALOG, catalog_work, 10, location),
    ]


def _build(name: str, stage: Stage, tick: Tick, seconds: int, location: Location) -> SensorDefinition:
    @sensor(
        name=name,
        description=(tick.__doc__ or "").strip(),
        asset_selection=AssetSelection.assets(*(asset_key(table, stage.value) for table in location.names())),
        minimum_interval_seconds=seconds,
        default_status=DefaultSensorStatus.RUNNING,
    )
    def evaluate(context: SensorEvaluationContext, platform: PlatformResource) -> SensorResult:
        return run_tick(context, platform, location, tick)

    return evaluate
