"""What a stage did for which tables and days, and how that becomes events of Dagster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from typing import Any

from dagster import AssetCheckResult, AssetExecutionContext, AssetMaterialization, MaterializeResult

from prism_assets.defs import failures
from prism_assets.defs.keys import SENSOR_TAG, SICK_TAG, Stage, asset_key, daily, has_day, table_of

Facts = Mapping[str, Any]
_FAILURES_SHOWN = 20


@dataclass(frozen=True)
class Task:
    """What one run was asked for: tables of one zone, and one day of them."""

    stage: Stage
    tables: tuple[str, ...]
    day: date
    by_sensor: bool
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @classmethod
    def of(cls, context: AssetExecutionContext, stage: Stage) -> Task:
        """Reads it from a run."""
        return cls(
            stage=stage,
            tables=tuple(sorted(table_of(key) for key in context.selected_asset_keys)),
            day=date.fromisoformat(context.partition_key),
            by_sensor=SENSOR_TAG in context.run.tags,
        )


@dataclass(frozen=True)
class Outcome:
    """What became of it: facts by table and day touched, and one sentence or more for each sick table.

    `own_day` holds facts of the day asked for also where nothing changed in it.
    """

    touched: Mapping[tuple[str, date], Facts]
    own_day: Mapping[str, Facts]
    sick: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def with_sick(self, more: Mapping[str, tuple[str, ...]]) -> Outcome:
        """The same with sentences about further sick tables."""
        tables = {*self.sick, *more}
        return replace(self, sick={table: (*self.sick.get(table, ()), *more.get(table, ())) for table in tables})


def report(
    context: AssetExecutionContext,
    task: Task,
    outcome: Outcome,
    checked: Iterable[AssetCheckResult],
    first_day: date,
    zone: str,
) -> Iterator[MaterializeResult[Any] | AssetCheckResult]:
    """Yields the healthy tables, notes other days, yields the checks, and only then fails for the sick ones.

    By hand, every healthy table is yielded: who asks for a day gets it, and what depends on it may go on. A sensor's
    run yields what it changed.
    """
    days = daily(first_day, zone)
    for (table, day), facts in outcome.touched.items():
        if day != task.day and has_day(days, day):
            key = asset_key(table, task.stage.value)
            context.log_event(AssetMaterialization(key, metadata=dict(facts), partition=day.isoformat()))
    for table in task.tables:
        if table in outcome.sick:
            continue
        facts = outcome.touched.get((table, task.day), {})
        if facts or not task.by_sensor:
            metadata = {**outcome.own_day.get(table, {}), **facts}
            yield MaterializeResult(asset_key=asset_key(table, task.stage.value), metadata=metadata)
    yield from checked
    if outcome.sick:
        context.instance.add_run_tags(context.run.run_id, {SICK_TAG: ",".join(sorted(outcome.sick))})
        raise failures.failure(_sentence(outcome.sick))


def _sentence(sick: Mapping[str, tuple[str, ...]]) -> str:
    lines = [f"{table}: {reason}" for table, reasons in sorted(sick.items()) for reason in reasons]
    more = [f"… and {len(lines) - _FAILURES_SHOWN} more"] if len(lines) > _FAILURES_SHOWN else []
    return "\n".join([f"{len(sick)} tables have a problem; all others are done:", *lines[:_FAILURES_SHOWN], *more])
