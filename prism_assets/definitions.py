"""Dagster's entry point: settings → tables → definitions."""

from dagster import Definitions, in_process_executor

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.failures import shown_while_loading
from prism_assets.defs.garbage import build_garbage_collection
from prism_assets.defs.location import load_location
from prism_assets.defs.maintenance import build_maintenance
from prism_assets.defs.resources import build_resources
from prism_assets.defs.sensors.build import build_sensors

with shown_while_loading():
    _location = load_location()
_maintenance, _nightly = build_maintenance(_location)
_garbage_collection, _after_it = build_garbage_collection(_location)

defs = Definitions(
    assets=build_assets(_location),
    jobs=[_maintenance, _garbage_collection],
    schedules=[_nightly, _after_it],
    sensors=build_sensors(_location),
    resources=build_resources(),
    executor=in_process_executor,
)
