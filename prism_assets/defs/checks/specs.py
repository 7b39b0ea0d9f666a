"""The checks of each table in Dagster, by stable names.

Every check is on the table's own asset, `prism/<schema>.<table>`. `PLANNED` checks are on the asset of their stage,
too: their failure says that rows may be lost. Dagster plans an event for each check that a run selects, and the button
of an asset selects all checks of that asset. With one check for the assets of all stages, a run plans five events a
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from dagster import AssetCheckSeverity, AssetCheckSpec
from dagster_shared.utils.warnings import disable_dagster_warnings

from prism_assets.defs.keys import Stage, asset_key, daily, table_key
from prism_assets.defs.location import Location
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.checks.intake import ROWS_BALANCE
from prism_assets.stages.checks.joins import CHANGES_BALANCE
from prism_assets.stages.checks.outcomes import Check
from prism_assets.stages.checks.run import CHECKS

PLANNED: Mapping[Stage, str] = {Stage.LIVE: ROWS_BALANCE, Stage.RECORDS: CHANGES_BALANCE}
"""The check of a stage's assets, which each run by hand plans."""
OF_DAYS = frozenset({ROWS_BALANCE})
"""Planned checks that judge one day."""


def kinds_of(stage: Stage) -> dict[str, Check]:
    """The checks of a stage by name."""
    return {name: check for name, check in CHECKS.items() if check.asset == stage.value}


def checks_of(stage: Stage, table: TableDefinition) -> list[Check]:
    """The checks of one table in a stage that it has."""
    return [check for check in kinds_of(stage).values() if check.is_of(table)]


def severity_of(check: Check) -> AssetCheckSeverity:
    """Returns Dagster's severity of a failed check."""
    return AssetCheckSeverity.ERROR if check.is_error else AssetCheckSeverity.WARN


def planned_specs(stage: Stage, tables: Iterable[TableDefinition], first_day: date) -> Iterator[AssetCheckSpec]:
    """Yields the checks that runs of a stage plan: at most one a table."""
    if stage not in PLANNED:
        return
    check = CHECKS[PLANNED[stage]]
    for table in tables:
        with disable_dagster_warnings():  # of checks with partitions; a test pins the parts used here
            spec = AssetCheckSpec(
                check.name,
                asset=asset_key(str(table.name), stage.value),
                description=check.about,
                blocking=check.blocking,
                partitions_def=daily(first_day, table.timezone) if check.name in OF_DAYS else None,
            )
        yield spec


def table_specs(stage: Stage, location: Location) -> Iterator[AssetCheckSpec]:
    """Yields the checks of a stage on the assets of whole tables."""
    for table in location.tables_of(stage):
        for check in checks_of(stage, table):
            yield AssetCheckSpec(check.name, asset=table_key(str(table.name)), description=check.about)
