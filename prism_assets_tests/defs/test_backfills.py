"""Backfills as Dagster's daemon carries them out: one run a day, failed days fail and are tried again alone."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter, instance_for_test
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration

import prism_assets
from prism_assets.defs.keys import asset_key
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.test_checks import MOST
from prism_assets_tests.world import World

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::dagster.BetaWarning")

_DEFINITIONS = Path(str(prism_assets.__file__)).with_name("definitions.py")
_FIRST_DAY_TAG, _LAST_DAY_TAG = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
NOON = datetime.now(timezone.utc).replace(hour=12, minute=0, second=0, microsecond=0)
NOW = NOON.strftime("%Y-%m-%dT%H:%M")
DAYS = [(NOON - timedelta(days=back)).date() for back in (3, 2, 1)]
TABLES = ("log.events", "log.other")


class Desk:
    """Starts backfills, and plays the daemon for them, in this process."""

    def __init__(self, instance: DagsterInstance, process: WorkspaceProcessContext) -> None:
        self.instance = instance
        self._process = process
        self._count = 0

    def backfill(
        self, days: Sequence[date], part: str = "live", *, tables: Sequence[str] = TABLES
    ) -> dict[str, DagsterRunStatus]:
        """Starts a backfill, runs it to the end, and returns the status of its runs by day."""
        self._count += 1
        name = f"backfill{self._count}"
        workspace = self._process.create_request_context()
        self.instance.add_backfill(
            PartitionBackfill.from_asset_partitions(
                backfill_id=name,
                asset_graph=workspace.asset_graph,
                partition_names=[day.isoformat() for day in days],
                asset_selection=[asset_key(table, part) for table in tables],
                backfill_timestamp=time.time(),
                tags={},
                dynamic_partitions_store=self.instance,
                all_partitions=False,
                title=None,
                description=None,
                run_config=None,
            )
        )
        for _ in range(20):
            errors = list(execute_backfill_iteration(self._process, logging.getLogger("backfill")))
            assert not [error for error in errors if error]
            self._launch_queued()
            if self.status(name) not in (BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING):
                return self.runs(name)
        raise AssertionError("the backfill does not end")

    def _launch_queued(self) -> None:
        """Plays the queue's daemon; each run ends before the return."""
        for run in self.instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED])):
            self.instance.launch_run(run.run_id, self._process.create_request_context())

    def status(self, name: str = "") -> BulkActionStatus:
        found = self.instance.get_backfill(name or f"backfill{self._count}")
        assert found is not None
        return found.status

    def runs(self, name: str) -> dict[str, DagsterRunStatus]:
        runs = [run for run in self.instance.get_runs() if run.tags.get("dagster/backfill") == name]
        ends = [(run.tags[_FIRST_DAY_TAG], run.tags[_LAST_DAY_TAG]) for run in runs]
        assert all(first == last for first, last in ends)
        found = {first: run.status for (first, _), run in zip(ends, runs, strict=True)}
        assert len(found) == len(runs), "a day has one run for all of its tables"
        assert all(len(run.asset_selection or ()) == len(TABLES) for run in runs)
        assert all(self.planned(run.run_id) <= MOST * len(TABLES) for run in runs)
        return found

    def planned(self, run_id: str) -> int:
        """Returns the number of planned events of a run."""
        events = [entry.dagster_event for entry in self.instance.all_logs(run_id) if entry.dagster_event]
        return sum(event.event_type_value.endswith("_PLANNED") for event in events)

    def green(self, part: str = "live", table: str = TABLES[0]) -> set[str]:
        return self.instance.get_materialized_partitions(asset_key(table, part))


@pytest.fixture
def desk(settled: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    settled.apply(a_table(), a_table("log.other"))
    monkeypatch.setenv("PRISM_TABLES_DIR", str(settled.settings.tables_dir))
    queue = {"module": "dagster.core.run_coordinator", "class": "QueuedRunCoordinator"}
    made = instance_for_test({"telemetry": {"enabled": False}, "run_coordinator": queue}, synchronous_run_launcher=True)
    sys.modules.pop(_DEFINITIONS.stem, None)  # Dagster caches a file once loaded from there
    target = LoadableTargetOrigin(python_file=str(_DEFINITIONS))
    location = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(target, location_name="prism_assets"))
    with made as instance, WorkspaceProcessContext(instance, location) as process:
        yield Desk(instance, process)


def drop_days(world: World) -> list[str]:
    """One object a day for the first table; returns their keys."""
    keys = [world.drop(some_rows(3, datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc))) for day in DAYS]
    world.stream(NOW)
    return keys


def everything(world: World) -> dict[str, bytes]:
    return {item.key: world.context.stores.get("lake", item.key) for item in world.context.stores.list("lake", "")}


def lose(world: World, days: Sequence[date]) -> None:
    """Deletes the small objects of some days."""
    keys = [item.key for item in world.context.stores.list("lake", "") if "/live/" in item.key]
    world.context.stores.delete("lake", [key for key in keys if any(f"dt={day}/" in key for day in days)])


def test_a_backfill_is_one_run_a_day_over_all_its_tables_and_brings_lost_days_back_to_their_readers(
    settled: World, desk: Desk
) -> None:
    drop_days(settled)
    assert desk.backfill(DAYS, "catalog") == {day.isoformat(): DagsterRunStatus.SUCCESS for day in DAYS}
    assert desk.status() is BulkActionStatus.COMPLETED_SUCCESS
    for table in TABLES:
        assert desk.green("catalog", table) == {day.isoformat() for day in DAYS}
    ids = settled.ids()
    assert len(ids) == 3 * len(DAYS)
    assert {desk.planned(run.run_id) for run in desk.instance.get_runs()} == {len(TABLES)}
    lose(settled, DAYS[2:])
    desk.backfill(DAYS[2:])
    desk.backfill(DAYS[2:], "catalog")
    assert settled.ids() == ids


def test_a_failed_day_fails_alone_and_is_tried_again_alone(settled: World, desk: Desk) -> None:
    keys = drop_days(settled)
    before = everything(settled)
    lost = settled.context.stores.get("staging", keys[1])
    lose(settled, DAYS[1:])
    settled.context.stores.delete("staging", [keys[1]])
    days = DAYS[1:]
    well = {day.isoformat(): DagsterRunStatus.SUCCESS for day in days}
    sick = DAYS[1].isoformat()
    assert desk.backfill(days) == {**well, sick: DagsterRunStatus.FAILURE}
    assert desk.green() == set(well) - {sick}
    assert desk.green(table="log.other") == set(well), "the healthy table of the failed day is done"
    path = settled.root / "buckets" / "staging" / keys[1]
    path.write_bytes(lost)
    assert desk.backfill([DAYS[1]]) == {sick: DagsterRunStatus.FAILURE}, "it is not the object that was converted"
    give_back(settled, keys[1])
    assert desk.backfill([DAYS[1]]) == {sick: DagsterRunStatus.SUCCESS}
    assert desk.green() == set(well)
    assert everything(settled) == before


def give_back(world: World, key: str) -> None:
    """Makes the restored object count as the converted one, like a restored version in S3."""
    (found,) = [item for item in world.context.stores.list("staging", "") if item.key == key]
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE prism_staging_objects SET etag = '{found.etag}' WHERE object_key = '{key}'")


def test_a_backfill_done_twice_changes_nothing(settled: World, desk: Desk) -> None:
    drop_days(settled)
    days = DAYS[2:]
    for part in ("catalog", "merged", "catalog"):
        assert set(desk.backfill(days, part).values()) == {DagsterRunStatus.SUCCESS}
    assert {settled.status(str(day), NOW).state for day in days} == {"switched"}
    before, ids = everything(settled), settled.ids()
    assert len(ids) == 3 * len(DAYS)
    for part in ("live", "merged", "catalog"):
        assert set(desk.backfill(days, part).values()) == {DagsterRunStatus.SUCCESS}
    assert everything(settled) == before
    assert settled.ids() == ids
