"""The check `healthy` of a table's own asset. A person may run the check at any time."""

# Dagster reads the annotations of checks, so this module does not postpone them.
from collections.abc import Iterator
from datetime import datetime, timezone

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSpec,
    multi_asset_check,
)

from prism_assets.defs import failures
from prism_assets.defs.health import HEALTHY, read_health
from prism_assets.defs.keys import table_key, table_of
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource

_ABOUT = "All checks of the table pass, and no finding of the table or of one of its days waits for a person."


def build_table_check(location: Location) -> list[AssetChecksDefinition]:
    """Builds one step for the checks of all tables. Empty without tables."""
    if not location.tables:
        return []
    specs = [AssetCheckSpec(HEALTHY, asset=table_key(name), description=_ABOUT) for name in location.names()]

    @multi_asset_check(name="table_health", specs=specs, can_subset=True, description="the health of all tables")
    def check(context: AssetCheckExecutionContext, prism_platform: PlatformResource) -> Iterator[AssetCheckResult]:
        names = sorted(table_of(key.asset_key) for key in context.selected_asset_check_keys)
        log = context.log
        with failures.mapped(), prism_platform.open(location, log.info, log.warning, context.run.run_id) as stages:
            for health in read_health(stages, location, names, datetime.now(timezone.utc)):
                yield AssetCheckResult(
                    passed=health.is_healthy,
                    asset_key=table_key(health.table),
                    check_name=HEALTHY,
                    description=health.sentence,
                    metadata=health.facts,
                )

    return [check]
