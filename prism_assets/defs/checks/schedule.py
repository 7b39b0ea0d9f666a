"""Every hour all checks are run by themselves: some fail because nothing happens, and then no run of a stage comes."""

from __future__ import annotations

from dagster import AssetSelection, DefaultScheduleStatus, ScheduleDefinition, define_asset_job

from prism_assets.defs.keys import CHECKS_JOB, PRIORITY_TAG
from prism_assets.defs.location import Location

_EVERY_HOUR = "7 * * * *"
_LAST = "-1"


def build_check_schedules(location: Location) -> list[ScheduleDefinition]:
    """The schedule `hourly_checks`, with its job; none where there is no table."""
    if not location.tables:
        return []
    job = define_asset_job(
        CHECKS_JOB,
        selection=AssetSelection.all_asset_checks(),
        description="Runs the checks of all tables, and nothing else.",
        tags={PRIORITY_TAG: _LAST},
    )
    return [
        ScheduleDefinition(
            name="hourly_checks",
            job=job,
            cron_schedule=_EVERY_HOUR,
            description="Runs the checks of all tables, also of those in which nothing happens.",
            default_status=DefaultScheduleStatus.RUNNING,
        )
    ]
