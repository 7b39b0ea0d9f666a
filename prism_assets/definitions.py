"""Dagster's entry point: settings → tables → definitions."""

from dagster import Definitions, in_process_executor

from prism_assets.defs.build import build_definitions
from prism_assets.defs.failures import shown_while_loading
from prism_assets.defs.location import load_location
from prism_assets.defs.resources import build_resources

with shown_while_loading():
    _location = load_location()

defs = Definitions.merge(
    build_definitions(_location), Definitions(resources=build_resources(), executor=in_process_executor)
)
