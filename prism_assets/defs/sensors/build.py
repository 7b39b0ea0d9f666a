"""All sensors. Each tick serves all tables of the code location."""

# Dagster reads the annotations of steps and sensors, so this module does not postpone them.
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
from prism_assets.defs.sensors.dead_workers import dead_workers
from prism_assets.defs.sensors.delayed_data import delayed_data
from prism_assets.defs.sensors.folds_due import folds_due
from prism_assets.defs.sensors.iceberg_work import iceberg_work
from prism_assets.defs.sensors.merges_due import merges_due
from prism_assets.defs.sensors.new_objects import new_objects
from prism_assets.defs.sensors.requests import Tick, run_tick
from prism_assets.defs.sensors.run_failures import run_failures
from prism_assets.defs.sensors.runless_materializations import runless_materializations
from prism_assets.defs.sensors.table_checks import table_checks
from prism_assets.defs.sensors.table_health import table_health

_RARELY_SECONDS = 30
_CHECKS_SECONDS = 300


def build_sensors(location: Location) -> list[SensorDefinition]:
    """Returns the sensors with a table to serve. Empty without tables."""
    if not location.tables:
        return []
    often, rarely = location.sensor_seconds, max(_RARELY_SECONDS, location.sensor_seconds)
    # Each tick has a cost, and most installations have no join table.
    folds = [_build("folds_due", folds_due, often, location, Stage.RECORDS)] if location.names(Stage.RECORDS) else []
    return [
        *folds,
        _build("new_objects", new_objects, often, location, Stage.LIVE),
        _build("merges_due", merges_due, rarely, location, Stage.MERGED),
        _build("delayed_data", delayed_data, often, location, Stage.CATALOG),
        _build("catalog_work", catalog_work, often, location, Stage.CATALOG),
        _build("iceberg_work", iceberg_work, often, location, Stage.ICEBERG),
        _build("dead_workers", dead_workers, often, location, None),
        _build("table_checks", table_checks, _CHECKS_SECONDS, location, None),
        _build("table_health", table_health, _CHECKS_SECONDS, location, None),
        _build("runless_materializations", runless_materializations, rarely, location, None),
        _build_run_failures(rarely),
    ]


def _build(name: str, tick: Tick, seconds: int, location: Location, target: Stage | None) -> SensorDefinition:
    keys = [] if target is None else [asset_key(table, target.value) for table in location.names(target)]

    @sensor(
        name=name,
        description=(tick.__doc__ or "").strip(),
        asset_selection=AssetSelection.assets(*keys) if keys else None,
        minimum_interval_seconds=seconds,
        default_status=DefaultSensorStatus.RUNNING,
    )
    def evaluate(context: SensorEvaluationContext, prism_platform: PlatformResource) -> SensorResult:
        return run_tick(context, prism_platform, location, tick)

    return evaluate


def _build_run_failures(seconds: int) -> SensorDefinition:
    """Builds the sensor without the platform, because it must report when the platform cannot be opened."""

    @sensor(
        name="run_failures",
        description=(run_failures.__doc__ or "").strip(),
        minimum_interval_seconds=seconds,
        default_status=DefaultSensorStatus.RUNNING,
    )
    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        return run_failures(context)

    return evaluate
