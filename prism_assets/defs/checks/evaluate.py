"""Runs the checks selected by a run, and translates their outcomes to Dagster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime

from dagster import AssetCheckExecutionContext, AssetCheckResult, AssetExecutionContext, AssetKey

from prism_assets.defs.assets.outcome import RunOrder
from prism_assets.defs.checks.specs import PLANNED, kinds_of, severity_of
from prism_assets.defs.keys import Stage, asset_key, table_key, table_of
from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.problems import Problem
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import CHECKS, run_checks
from prism_assets.stages.context import StageContext


@dataclass(frozen=True)
class Selection:
    """The checks a run was asked for: table and name of each."""

    stage: Stage
    wanted: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, context: AssetExecutionContext | AssetCheckExecutionContext, stage: Stage) -> Selection:
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


@dataclass(frozen=True)
class RunOutcomes:
    """The outcomes of the checks of one run."""

    of_stage: tuple[CheckOutcome, ...] = ()
    """Planned results, on the assets of the stage."""
    of_table: tuple[CheckOutcome, ...] = ()
    """All checks of the stage, for the assets of whole tables."""

    def blocking_problems(self) -> list[Problem]:
        """Returns a problem for each table and failed blocking check."""
        failed = {
            (item.table, item.check): item
            for item in (*self.of_table, *self.of_stage)
            if not item.passed and CHECKS[item.check].blocking
        }
        assert all(CHECKS[check].is_error for _, check in failed)
        return [Problem(table=table, reason=item.sentence) for (table, _), item in failed.items()]


def evaluate(
    context: StageContext,
    selection: Selection,
    limits: Mapping[str, CheckLimits],
    now: datetime,
    since: datetime | None = None,
    day: date | None = None,
) -> tuple[CheckOutcome, ...]:
    """Runs the selected checks, one statement per name.

    `since` limits the ledger to the conversions of one run, `day` to the objects with rows of one day.
    """
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
            day=day,
        )
    ]
    return tuple(outcomes)


def evaluate_with(
    context: StageContext,
    selection: Selection,
    order: RunOrder,
    limits: Mapping[str, CheckLimits],
) -> RunOutcomes:
    """Runs the planned checks of `selection` for the run's day, and all checks of its stage for the whole tables.

    A sensor's run asks no catalog, because the publication has just read it back. It reports failures only, because
    recording takes much longer than checking.
    """
    if not order.by_sensor:
        of_table = Selection.all_of(order.stage, order.tables)
        return RunOutcomes(
            of_stage=evaluate(context, selection, limits, order.started, day=order.day),
            of_table=evaluate(context, of_table, limits, order.started),
        )
    chosen = Selection.all_of(order.stage, order.tables, without=_asking_catalogs(order.stage))
    found = evaluate(context, chosen, limits, order.started, order.started)
    failed = tuple(item for item in found if not item.passed)
    planned = tuple(item for item in failed if item.check == PLANNED.get(order.stage))
    return RunOutcomes(of_stage=planned, of_table=failed)


def _asking_catalogs(stage: Stage) -> list[str]:
    return [name for name, check in kinds_of(stage).items() if check.asks_catalog]


def planned_results(stage: Stage, outcomes: Iterable[CheckOutcome]) -> Iterator[AssetCheckResult]:
    """Yields Dagster's results of planned checks."""
    for outcome in outcomes:
        yield _result(asset_key(outcome.table, stage.value), outcome)


def table_results(outcomes: Iterable[CheckOutcome]) -> Iterator[AssetCheckResult]:
    """Yields Dagster's results of checks of whole tables."""
    for outcome in outcomes:
        yield _result(table_key(outcome.table), outcome)


def _result(key: AssetKey, outcome: CheckOutcome) -> AssetCheckResult:
    return AssetCheckResult(
        passed=outcome.passed,
        asset_key=key,
        check_name=outcome.check,
        severity=severity_of(CHECKS[outcome.check]),
        description=outcome.sentence,
        metadata=dict(outcome.figures),
    )
