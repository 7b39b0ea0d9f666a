"""The checks of each stage in Dagster, by stable names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dagster import AssetCheckSeverity, AssetCheckSpec

from prism_assets.defs.keys import Stage, asset_key
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.checks.outcomes import Check
from prism_assets.stages.checks.run import CHECKS


def kinds_of(stage: Stage) -> dict[str, Check]:
    """The checks of a stage by name."""
    return {name: check for name, check in CHECKS.items() if check.asset == stage.value}


def checks_of(stage: Stage, table: TableDefinition) -> list[Check]:
    """The checks of one table in a stage that it has."""
    return [check for check in kinds_of(stage).values() if check.is_of(table)]


def severity_of(check: Check) -> AssetCheckSeverity:
    """Returns Dagster's severity of a failed check."""
    return AssetCheckSeverity.ERROR if check.is_error else AssetCheckSeverity.WARN


def check_specs(stage: Stage, tables: Iterable[TableDefinition]) -> Iterator[AssetCheckSpec]:
    """The checks of one stage for tables of one step."""
    for table in tables:
        key = asset_key(str(table.name), stage.value)
        for check in checks_of(stage, table):
            yield AssetCheckSpec(check.name, asset=key, description=check.about, blocking=check.blocking)
