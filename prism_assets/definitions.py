"""Dagster's entry point: settings → tables → definitions."""

from dagster import Definitions, in_process_executor

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.location import load_location
from prism_assets.defs.resources import build_resources
from prism_assets.defs.sensors.build import build_sensors

_location = load_location()

defs = Definitions(
    assets=build_assets(_location),
    sensors=build_sensors(_location),
    resources=build_resources(),
    executor=in_process_executor,
)
