"""All definitions of one lake, for a code location of its own or for a part of somebody's project."""

from __future__ import annotations

from dagster import Definitions

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.checks.table import build_table_checks
from prism_assets.defs.garbage import build_garbage_collection
from prism_assets.defs.location import Location
from prism_assets.defs.maintenance import build_maintenance
from prism_assets.defs.resources import build_platform
from prism_assets.defs.sensors.build import build_sensors


def build_definitions(location: Location) -> Definitions:
    """Returns assets, jobs, schedules and sensors, with the one resource that they need.

    The result merges with definitions of other assets. An executor and resources under common names, such as `s3`,
    would collide with theirs.
    """
    maintenance, nightly = build_maintenance(location)
    garbage_collection, after_it = build_garbage_collection(location)
    return Definitions(
        assets=build_assets(location),
        asset_checks=build_table_checks(location),
        jobs=[maintenance, garbage_collection],
        schedules=[nightly, after_it],
        sensors=build_sensors(location),
        resources=build_platform(),
    )
