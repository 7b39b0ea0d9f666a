"""Builds the assets of all tables: external staging assets, and one step per stage and time zone."""

# Dagster reads the annotations of steps and sensors, so this module does not postpone them.
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    MaterializeResult,
    multi_asset,
)

from prism_assets.defs import failures
from prism_assets.defs.assets import reported_positions
from prism_assets.defs.assets.catalog import make_catalog
from prism_assets.defs.assets.configuration import config_schema
from prism_assets.defs.assets.iceberg import make_iceberg
from prism_assets.defs.assets.live import make_live
from prism_assets.defs.assets.merged import make_merged
from prism_assets.defs.assets.outcome import Outcome, RunOrder, fail_for_problems, report
from prism_assets.defs.assets.records import make_records
from prism_assets.defs.checks.evaluate import RunOutcomes, Selection, evaluate, evaluate_with, planned_results
from prism_assets.defs.checks.runless import report_changes
from prism_assets.defs.checks.specs import planned_specs
from prism_assets.defs.keys import Stage, daily, step_name
from prism_assets.defs.lineage import placed
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource
from prism_assets.defs.specs import stage_specs, staging_spec, table_spec, topic_specs
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.context import StageContext

Make = Callable[[StageContext, RunOrder], Outcome]

_NOT_APPLIED = "the table is not there: its file is not applied, and the log of this run says why"

_MAKERS: dict[Stage, Make] = {
    Stage.LIVE: make_live,
    Stage.MERGED: make_merged,
    Stage.RECORDS: make_records,
    Stage.CATALOG: make_catalog,
    Stage.ICEBERG: make_iceberg,
}


def build_assets(location: Location) -> list[AssetsDefinition | AssetSpec]:
    """Builds five assets per log, and a sixth for Iceberg. Records of join tables get three, and each topic one.

    One of them stands for the whole table.
    """
    logs = [table for table in location.tables if table.join is None]
    staging = [placed(staging_spec(table), table, location) for table in logs]
    steps = [
        _build_step(stage, zone, location)
        for zone in location.zones()
        for stage in Stage
        if location.tables_of(stage, zone)
    ]
    whole = [placed(table_spec(table), table, location) for table in location.tables]
    return [*topic_specs(logs), *staging, *steps, *whole]


def _build_step(stage: Stage, zone: str, location: Location) -> AssetsDefinition:
    """Builds one step. Tables of one zone share its partitions, so a run covers one day and any number of tables."""
    tables = location.tables_of(stage, zone)
    specs = [
        placed(spec, table, location)
        for spec, table in zip(stage_specs(stage, tables, location.first_day), tables, strict=True)
    ]

    @multi_asset(
        name=step_name(stage, zone),
        specs=specs,
        check_specs=list(planned_specs(stage, tables, location.first_day)),
        partitions_def=daily(location.first_day, zone),
        can_subset=True,
        pool=stage.pool,
        config_schema=config_schema(stage),
        backfill_policy=BackfillPolicy.multi_run(max_partitions_per_run=1),
        description=f"{stage.value} of all tables in {zone}",
    )
    def step(
        context: AssetExecutionContext, prism_platform: PlatformResource
    ) -> Iterator[MaterializeResult[Any] | AssetMaterialization | AssetCheckResult]:
        selection = Selection.of(context, stage)
        if not context.selected_asset_keys:
            yield from planned_results(stage, _check_alone(context, prism_platform, location, selection))
            return
        order, log = RunOrder.of(context, stage), context.log
        # The platform stays open until the last event: the run's lock shows that its process is alive.
        with failures.mapped(), prism_platform.open(location, log.info, log.warning, context.run.run_id) as stages:
            outcome, checked = _carry_out(stages, location, order, selection, log.warning)
            results = planned_results(stage, checked.of_stage)
            reported = yield from report(order, outcome, results, location.first_day, zone)
            for change in report_changes(context.instance, checked.of_table):
                log.info(f"{change.table}: check {change.check}: {change.sentence}")
            reported_positions.record(stages, outcome.positions, reported, log.warning)
            fail_for_problems(context, order, outcome)

    return step


def _carry_out(
    stages: StageContext, location: Location, order: RunOrder, selection: Selection, warn: Callable[[str], None]
) -> tuple[Outcome, RunOutcomes]:
    """Does the work of a stage, then runs its checks. Tables fail if their rows do not balance.

    In manual runs, two more kinds of tables fail: those whose checks could not run, because dependents must not
    continue, and those with a wrong table file. The latter have assets but no rows in PostgreSQL.
    """
    stored = {str(table.name) for table in stages.choose_tables(None)}
    missing = [Problem(table=name, reason=_NOT_APPLIED) for name in order.tables if name not in stored]
    order = replace(order, tables=tuple(name for name in order.tables if name in stored))
    outcome = _MAKERS[order.stage](stages, order).with_problems(missing)
    try:
        checked = evaluate_with(stages, selection.of_tables(stored), order, location.limits())
    except PrismError as error:
        warn(f"the checks were not run: {error}")
        unchecked = () if order.by_sensor else order.tables
        return outcome.with_problems(Problem.of(error, table) for table in unchecked), RunOutcomes()
    return outcome.with_problems(checked.blocking_problems()), checked


def _check_alone(
    context: AssetExecutionContext, prism_platform: PlatformResource, location: Location, selection: Selection
) -> tuple[CheckOutcome, ...]:
    """Runs planned checks without their stage, for a person: of the chosen day, or of the last conversions."""
    log = context.log
    day = date.fromisoformat(context.partition_key) if context.has_partition_key else None
    with failures.mapped(), prism_platform.open(location, log.info, log.warning, context.run.run_id) as stages:
        return evaluate(stages, selection, location.limits(), datetime.now(timezone.utc), day=day)
