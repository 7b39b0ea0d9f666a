"""The outcome of a stage by table and day, and its translation into Dagster events."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from typing import Any

from dagster import AssetCheckResult, AssetExecutionContext, AssetMaterialization, MaterializeResult

from prism_assets.defs import failures
from prism_assets.defs.assets.configuration import Rebuilding, rebuilding_of
from prism_assets.defs.assets.reported_positions import Positions
from prism_assets.defs.keys import (
    FAILED_TABLES_TAG,
    SENSOR_TAG,
    Stage,
    asset_key,
    daily,
    has_day,
    table_of,
)
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted

Facts = Mapping[str, Any]
_FAILURES_SHOWN = 20


@dataclass(frozen=True)
class RunOrder:
    """The request of one run: tables of one zone, and one day."""

    stage: Stage
    tables: tuple[str, ...]
    day: date
    by_sensor: bool
    rebuild: Rebuilding = Rebuilding.NONE
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def rebuilds(self) -> bool:
        """Whether a person asked for a rebuild."""
        return self.rebuild is not Rebuilding.NONE and not self.by_sensor

    @classmethod
    def of(cls, context: AssetExecutionContext, stage: Stage) -> RunOrder:
        """Reads the order from a run."""
        return cls(
            stage=stage,
            tables=tuple(sorted(table_of(key) for key in context.selected_asset_keys)),
            day=date.fromisoformat(context.partition_key),
            by_sensor=SENSOR_TAG in context.run.tags,
            rebuild=rebuilding_of(context.op_execution_context.op_config),
        )


@dataclass(frozen=True)
class Outcome:
    """Facts by touched table and day, and problems."""

    touched: Mapping[tuple[str, date], Facts]
    own_day: Mapping[str, Facts]
    """Facts of the requested day by table, also if nothing changed in it."""
    problems: tuple[Problem, ...] = ()
    positions: Positions = field(default_factory=dict)
    """How far each partition has come."""
    warnings: tuple[str, ...] = ()
    """Logged, without failing the run."""

    def with_problems(self, more: Iterable[Problem]) -> Outcome:
        """Returns the outcome with further problems."""
        return replace(self, problems=(*self.problems, *more))


def report(
    order: RunOrder,
    outcome: Outcome,
    checked: Iterable[AssetCheckResult],
    first_day: date,
    zone: str,
) -> Generator[MaterializeResult[Any] | AssetMaterialization | AssetCheckResult, None, set[tuple[str, date]]]:
    """Yields materialisations of healthy tables, of other touched days, and check results. Returns the reported days by
    table.

    A manual run yields every healthy table, because its caller asked for this day. A table then fails only for problems
    with this day or with the whole table, so each day of a backfill fails alone. A sensor's run yields changed days
    only, also of failed tables, because their rows exist; it fails for every problem.
    """
    failed = {problem.table for problem in _problems_of(order, outcome)}
    days, reported = daily(first_day, zone), set[tuple[str, date]]()
    for (table, day), facts in outcome.touched.items():
        if (day != order.day or (order.by_sensor and table in failed)) and has_day(days, day):
            key = asset_key(table, order.stage.value)
            # Yielded, because Dagster loses logged events if the run fails before it yields anything.
            yield AssetMaterialization(key, metadata=dict(facts), partition=day.isoformat())
            reported.add((table, day))
    for table in order.tables:
        if table in failed:
            continue
        facts = outcome.touched.get((table, order.day), {})
        if facts or not order.by_sensor:
            metadata = {**outcome.own_day.get(table, {}), **facts}
            yield MaterializeResult(asset_key=asset_key(table, order.stage.value), metadata=metadata)
            reported.add((table, order.day))
    yield from checked
    return reported


def fail_for_problems(context: AssetExecutionContext, order: RunOrder, outcome: Outcome) -> None:
    """Fails the run for its problems, after everything else is reported. Problems of other days become warnings."""
    mine = _problems_of(order, outcome)
    for warning in outcome.warnings:
        context.log.warning(warning)
    for problem in outcome.problems:
        if problem not in mine:
            context.log.warning(f"another day has a problem: {problem}")
    if mine:
        failed = {problem.table for problem in mine}
        context.instance.add_run_tags(context.run.run_id, {FAILED_TABLES_TAG: ",".join(sorted(failed))})
        failures.raise_for(_sentence(mine), transient=all(problem.transient for problem in mine))


def _problems_of(order: RunOrder, outcome: Outcome) -> list[Problem]:
    return [problem for problem in outcome.problems if order.by_sensor or problem.date in (None, order.day)]


def _sentence(problems: Sequence[Problem]) -> str:
    lines = sorted(str(problem) for problem in problems)
    more = [f"… and {len(lines) - _FAILURES_SHOWN} more"] if len(lines) > _FAILURES_SHOWN else []
    tables = len({problem.table for problem in problems})
    return "\n".join(
        [
            f"{counted(tables, 'table has', 'tables have')} a problem; all others are done:",
            *lines[:_FAILURES_SHOWN],
            *more,
        ]
    )
