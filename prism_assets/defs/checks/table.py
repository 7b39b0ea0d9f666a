"""The checks on a table's own asset, for a person who runs them. Otherwise sensors and runs report them."""

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
from prism_assets.defs.checks.evaluate import Selection, evaluate, table_results
from prism_assets.defs.checks.specs import table_specs
from prism_assets.defs.health import HEALTHY, read_health
from prism_assets.defs.keys import Stage, table_key, table_of
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource

_ABOUT = "All checks of the table pass, and no finding of the table or of one of its days waits for a person."


def build_table_checks(location: Location) -> list[AssetChecksDefinition]:
    """Builds a step for the health of all tables, and one for the checks of each stage. Empty without tables."""
    if not location.tables:
        return []
    return [_health(location), *(_checks(stage, location) for stage in Stage if location.tables_of(stage))]


def _health(location: Location) -> AssetChecksDefinition:
    specs = [AssetCheckSpec(HEALTHY, asset=table_key(name), description=_ABOUT) for name in location.names()]

    @multi_asset_check(name="table_health", specs=specs, can_subset=True, description="the health of all tables")
    def check(context: AssetCheckExecutionContext, prism_platform: PlatformResource) -> Iterator[AssetCheckResult]:
        names = sorted(table_of(key.asset_key) for key in context.selected_asset_check_keys)
        log = context.log
        with failures.mapped(), prism_platform.open(location, log.info, log.warning, context.run.run_id) as stages:
            for health in read_health(stages, context.instance, location, names, datetime.now(timezone.utc)):
                yield AssetCheckResult(
                    passed=health.is_healthy,
                    asset_key=table_key(health.table),
                    check_name=HEALTHY,
                    description=health.sentence,
                    metadata=health.facts,
                )

    return check


def _checks(stage: Stage, location: Location) -> AssetChecksDefinition:
    specs = list(table_specs(stage, location))

    @multi_asset_check(
        name=f"table_checks_{stage.value}",
        specs=specs,
        can_subset=True,
        description=f"all checks of `{stage.value}` for all tables",
    )
    def check(context: AssetCheckExecutionContext, prism_platform: PlatformResource) -> Iterator[AssetCheckResult]:
        selection, log = Selection.of(context, stage), context.log
        with failures.mapped(), prism_platform.open(location, log.info, log.warning, context.run.run_id) as stages:
            found = evaluate(stages, selection, location.limits(), datetime.now(timezone.utc))
        yield from table_results(found)

    return check
