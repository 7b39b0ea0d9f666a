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


def severity_of(check: Check) -> AssetCheckSeverity:
    """Returns Dagster's severity of a failed check."""
    return AssetCheckSeverity.ERROR if check.is_error else AssetCheckSeverity.WARN


def check_specs(stage: Stage, tables: Iterable[TableDefinition]) -> Iterator[AssetCheckSpec]:
    """The checks of one stage for tables of one step."""
    for table in tables:
        key = asset_key(str(table.name), stage.value)
        for check in kinds_of(stage).values():
            yield AssetCheckSpec(check.name, asset=key, description=check.about, blocking=check.blocking)
