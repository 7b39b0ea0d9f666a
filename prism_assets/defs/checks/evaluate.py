"""Runs the checks selected by a run, and translates their outcomes to Dagster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from dagster import AssetCheckResult, AssetExecutionContext

from prism_assets.defs.assets.outcome import RunOrder
from prism_assets.defs.checks.specs import kinds_of, severity_of
from prism_assets.defs.keys import Stage, asset_key, table_of
from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.problems import Problem
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.context import StageContext


@dataclass(frozen=True)
class Selection:
    """The checks a run was asked for: table and name of each."""

    stage: Stage
    wanted: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, context: AssetExecutionContext, stage: Stage) -> Selection:
        """Reads the selection of a run."""
        keys = context.selected_asset_check_keys
        return cls(stage, frozenset((table_of(key.asset_key), key.name) for key in keys))

    def of_tables(self, tables: Collection[str]) -> Selection:
        """Returns the selection limited to some tables."""
        return replace(self, wanted=frozenset(item for item in self.wanted if item[0] in tables))

    @classmethod
    def all_of(cls, stage: Stage, tables: Collection[str], without: Collection[str] = ()) -> Selection:
        """Selects all checks of a stage for some tables, except those named in `without`."""
        names = set(kinds_of(stage)) - set(without)
        return cls(stage, frozenset((table, name) for table in tables for name in names))


def evaluate(
    context: StageContext,
    selection: Selection,
    limits: Mapping[str, CheckLimits],
    now: datetime,
    since: datetime | None = None,
) -> tuple[CheckOutcome, ...]:
    """Runs the selected checks, one statement per name. `since` limits the ledger to the conversions of one run."""
    names = {name for _, name in selection.wanted}
    outcomes = [
        outcome
        for name in sorted(names)
        for outcome in run_checks(
            context,
            [name],
            now=now,
            names={table for table, check in selection.wanted if check == name},
            limits=limits,
            since=since,
        )
    ]
    return tuple(outcomes)


def evaluate_with(
    context: StageContext,
    selection: Selection,
    order: RunOrder,
    limits: Mapping[str, CheckLimits],
) -> tuple[CheckOutcome, ...]:
    """Runs the checks of a run's own work.

    For a sensor's run they do not ask the catalog, because the publication has just read it back. Then only failures
    are reported, because recording takes much longer than checking.
    """
    if not order.by_sensor:
        return evaluate(context, selection, limits, order.started)
    chosen = Selection.all_of(order.stage, order.tables, without=_asking_catalogs(order.stage))
    found = evaluate(context, chosen, limits, order.started, order.started)
    return tuple(item for item in found if not item.passed)


def _asking_catalogs(stage: Stage) -> list[str]:
    return [name for name, check in kinds_of(stage).items() if check.asks_catalog]


def results(stage: Stage, outcomes: Iterable[CheckOutcome]) -> Iterator[AssetCheckResult]:
    """Yields Dagster's results of the outcomes."""
    kinds = kinds_of(stage)
    for outcome in outcomes:
        yield AssetCheckResult(
            passed=outcome.passed,
            asset_key=asset_key(outcome.table, stage.value),
            check_name=outcome.check,
            severity=severity_of(kinds[outcome.check]),
            description=outcome.sentence,
            metadata=dict(outcome.figures),
        )


def blocking_problems(stage: Stage, outcomes: Iterable[CheckOutcome]) -> list[Problem]:
    """Returns the problems of failed blocking checks."""
    kinds = kinds_of(stage)
    failed = [outcome for outcome in outcomes if not outcome.passed and kinds[outcome.check].blocking]
    assert all(kinds[outcome.check].is_error for outcome in failed)
    return [Problem(table=outcome.table, reason=outcome.sentence) for outcome in failed]
