"""Pruning of old runs: removed and kept ones. Every partition stays green."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

import pytest
from dagster import (
    AssetMaterialization,
    AssetsDefinition,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DailyPartitionsDefinition,
    Definitions,
    RunsFilter,
    asset,
)
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from prism_assets.defs.keys import MAINTENANCE, asset_key
from prism_assets.defs.maintenance import Pruned, build_maintenance, prune_runs
from prism_assets.defs.resources import build_platform
from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.world import World

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

DAYS = DailyPartitionsDefinition("2026-03-01")
KEY = asset_key("log.thing", "live")
LATER = datetime.now(timezone.utc) + timedelta(hours=1)


@asset(partitions_def=DAYS, key=KEY)
def thing() -> None: ...


@asset(partitions_def=DAYS, key=asset_key("log.brittle", "live"))
def brittle() -> None:
    raise RuntimeError("broken")


@asset(partitions_def=DAYS)
def theirs() -> None: ...


def make(
    instance: DagsterInstance, day: str, made: AssetsDefinition = thing, tags: Mapping[str, str] | None = None
) -> str:
    """Makes one run for a day, and returns its id."""
    runner = Definitions(assets=[made]).resolve_implicit_global_asset_job_def()
    result = runner.execute_in_process(
        asset_selection=[made.key], instance=instance, partition_key=day, raise_on_error=False, tags=tags
    )
    return result.run_id


def a_finished_run(instance: DagsterInstance, job_name: str, **tags: str) -> str:
    """One of a job without assets."""
    return instance.add_run(DagsterRun(job_name=job_name, status=DagsterRunStatus.SUCCESS, tags=tags)).run_id


def left(instance: DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs()}


def green(instance: DagsterInstance) -> Sequence[str]:
    """Returns the materialised days in the UI, computed again and from the cache."""
    cached = get_and_update_asset_status_cache_value(instance, KEY, DAYS)
    assert cached is not None
    shown = set(cached.deserialize_materialized_partition_subsets(DAYS).get_partition_keys())
    assert shown == instance.get_materialized_partitions(KEY)
    return sorted(shown)


def prune(instance: DagsterInstance, before: datetime = LATER, seconds: float = 60) -> Pruned:
    return prune_runs(instance, before=before, seconds=seconds)


def test_runs_whose_materialisations_were_followed_by_newer_ones_go(instance: DagsterInstance) -> None:
    old = [make(instance, "2026-03-01") for _ in range(3)]
    other = make(instance, "2026-03-02")
    assert green(instance) == ["2026-03-01", "2026-03-02"]
    assert prune(instance) == Pruned(deleted=2, kept=2, is_complete=True)
    assert left(instance) == {old[2], other}
    assert green(instance) == ["2026-03-01", "2026-03-02"]
    assert instance.all_logs(old[0]) == []
    assert prune(instance) == Pruned(deleted=0, kept=2, is_complete=True)


def test_partitions_stay_green_also_when_their_status_is_computed_anew(instance: DagsterInstance) -> None:
    for day in ("2026-03-01", "2026-03-01", "2026-03-02", "2026-03-01"):
        make(instance, day)
    prune(instance)
    instance.wipe_asset_cached_status([KEY])
    assert green(instance) == ["2026-03-01", "2026-03-02"]


def test_a_run_that_also_marked_another_day_stays_until_that_day_has_a_newer_one(instance: DagsterInstance) -> None:
    @asset(partitions_def=DAYS, key=KEY)
    def late_rows(context) -> None:  # type: ignore[no-untyped-def]
        context.log_event(AssetMaterialization(KEY, partition="2026-03-05"))

    first = make(instance, "2026-03-01", late_rows)
    make(instance, "2026-03-01")
    assert prune(instance).deleted == 0
    make(instance, "2026-03-05")
    assert prune(instance).deleted == 1
    assert first not in left(instance)


def test_failed_runs_and_runs_without_materialisations_go(instance: DagsterInstance) -> None:
    make(instance, "2026-03-01", brittle)
    kept = make(instance, "2026-03-01")
    assert prune(instance).deleted == 1
    assert left(instance) == {kept}


def test_runs_of_others_stay_whatever_they_made(instance: DagsterInstance) -> None:
    others = [make(instance, "2026-03-01", theirs) for _ in range(2)]
    others.append(a_finished_run(instance, "their_job"))
    gone = a_finished_run(instance, MAINTENANCE)
    assert prune(instance) == Pruned(deleted=1, kept=0, is_complete=True)
    assert left(instance) == set(others)
    assert gone not in left(instance)


def test_ours_are_found_among_many_pages_of_others(instance: DagsterInstance) -> None:
    ours = []
    for number in range(330):
        if number % 110 == 0:
            ours.append(a_finished_run(instance, MAINTENANCE))
        a_finished_run(instance, "their_job")
    assert prune(instance) == Pruned(deleted=3, kept=0, is_complete=True)
    assert len(left(instance)) == 330
    assert not left(instance) & set(ours)


def test_young_runs_stay(instance: DagsterInstance) -> None:
    make(instance, "2026-03-01")
    make(instance, "2026-03-01")
    before = datetime.now(timezone.utc) - timedelta(days=1)
    assert prune(instance, before) == Pruned(deleted=0, kept=0, is_complete=True)


def test_runs_that_are_not_over_stay(instance: DagsterInstance) -> None:
    run = instance.add_run(DagsterRun(job_name=MAINTENANCE, status=DagsterRunStatus.STARTED))
    assert prune(instance) == Pruned(deleted=0, kept=0, is_complete=True)
    assert left(instance) == {run.run_id}


@pytest.mark.parametrize(
    ("status", "deleted"), [(BulkActionStatus.REQUESTED, 0), (BulkActionStatus.CANCELING, 0),
                            (BulkActionStatus.FAILING, 0), (BulkActionStatus.COMPLETED_FAILED, 1)]
)  # fmt: skip
def test_runs_of_a_backfill_stay_until_it_is_over(
    instance: DagsterInstance, status: BulkActionStatus, deleted: int
) -> None:
    make(instance, "2026-03-01", tags={"dagster/backfill": "one"})
    make(instance, "2026-03-01")
    instance.add_backfill(
        PartitionBackfill(backfill_id="one", status=status, from_failure=False, tags={}, backfill_timestamp=0.0)
    )
    assert prune(instance).deleted == deleted


def test_many_pages_are_pruned_and_time_is_kept(instance: DagsterInstance) -> None:
    for number in range(250):
        a_finished_run(instance, MAINTENANCE, number=str(number))
    assert prune(instance, seconds=0) == Pruned(deleted=100, kept=0, is_complete=False)
    numbers = {int(run.tags["number"]) for run in instance.get_runs()}
    assert max(numbers) == 149, "the newest go first"
    assert prune(instance) == Pruned(deleted=150, kept=0, is_complete=True)


def test_the_job_prunes_and_refreshes_and_its_schedule_is_on(settled: World, instance: DagsterInstance) -> None:
    job_, schedule = build_maintenance(a_location(settled.root, a_table()))
    definitions = Definitions(jobs=[job_], schedules=[schedule], resources=build_platform())
    make(instance, "2026-03-01")
    result = definitions.resolve_job_def(MAINTENANCE).execute_in_process(instance=instance)
    assert result.success
    assert schedule.default_status.value == "RUNNING"
    assert instance.get_runs(RunsFilter(job_name=MAINTENANCE))
    with settled.context.database.begin() as connection:
        statement = "SELECT count(*) FROM pg_stat_user_tables WHERE relname LIKE 'prism%%' AND last_analyze IS NOT NULL"
        assert connection.exec_driver_sql(statement).scalar_one() == 13


def test_the_retention_is_a_setting(settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_RUN_RETENTION_DAYS", "0")
    job_, _ = build_maintenance(a_location(settled.root, a_table()))
    runner = Definitions(jobs=[job_], resources=build_platform()).resolve_job_def(MAINTENANCE)
    result = runner.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    failure = result.failure_data_for_node("prune_old_runs")
    assert failure is not None
    assert "PRISM_RUN_RETENTION_DAYS" in str(failure.user_failure_data and failure.user_failure_data.description)
