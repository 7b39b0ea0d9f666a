"""Stream and Merge on a cluster of two single-core workers, by its master and by a Connect server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from prism_assets.engine.allocator import ONE_HEAP
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.engine.spark_cluster import SparkCluster
from prism_assets_tests.engine.waiting import LIMIT_SECONDS
from prism_assets_tests.world import World
from prism_local.processes import family

pytestmark = pytest.mark.stack

DAYS = ("2026-03-01", "2026-03-02")


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def cluster(running_cluster: SparkCluster) -> Iterator[SparkCluster]:
    """Two workers, whatever became of them in the test before."""
    running_cluster.up()
    yield running_cluster
    running_cluster.release()


def prism(world: World, cluster: SparkCluster, remote: str, *words: str) -> subprocess.Popen[bytes]:
    """Starts a command, with a separate driver on a classic master."""
    settings = {
        "PRISM_DATABASE_URL": world.settings.database_url.get_secret_value(),
        "PRISM_BUCKET": "lake",
        "PRISM_LOCAL_ROOT": str(world.root / "buckets"),
        "PRISM_GLUE_ENDPOINT": world.settings.glue_endpoint or "",
        "PRISM_GLUE_DATABASE_PREFIX": world.settings.glue_database_prefix,
        "PRISM_TABLES_DIR": str(world.settings.tables_dir),
        "PRISM_SPARK_REMOTE": remote,
    }
    foreign = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
    own = {key: value for key, value in os.environ.items() if key not in foreign}
    with (cluster.folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "prism_assets.cli", *words],
            env={**own, **cluster.environment, **settings},
            stdout=log,
            stderr=log,
        )


def run_while_held(
    command: Callable[[], subprocess.Popen[bytes]], cluster: SparkCluster, fault: Callable[[], None]
) -> None:
    """Holds both workers in mid-task at the same time, makes the fault, and lets the command finish."""
    cluster.hold()
    process = command()
    try:
        cluster.await_tasks_on_both()
        fault()
        cluster.release()
        assert process.wait(LIMIT_SECONDS) == 0
    finally:
        cluster.release()
        process.kill()
        process.wait()


def has_own_daemon(worker: psutil.Process) -> bool:
    """Whether a worker's Python workers are forks of a daemon with the modules of tasks, and with one heap."""
    for process in family(worker):
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            if "prism_assets.engine.daemon" in process.cmdline():
                return ONE_HEAP.items() <= process.environ().items()
    return False


def charged(world: World) -> list[tuple[object, ...]]:
    """Returns objects and merges with an attempt or an error."""
    with world.context.database.begin() as connection:
        objects = connection.exec_driver_sql(
            "SELECT object_key, state, attempts, last_error FROM prism_staging_objects "
            "WHERE state <> 'done' OR attempts > 0 OR last_error IS NOT NULL"
        ).all()
        jobs = connection.exec_driver_sql(
            "SELECT prism_merge_job_id, attempts, last_error FROM prism_merge_jobs "
            "WHERE attempts > 0 OR last_error IS NOT NULL"
        ).all()
    return [*map(tuple, objects), *map(tuple, jobs)]


@pytest.mark.parametrize("by", ["its master", "Spark Connect"])
def test_both_workers_are_at_work_and_one_that_dies_costs_no_row(
    by: str, world: World, cluster: SparkCluster, long: bool
) -> None:
    if by == "Spark Connect" and not long:
        pytest.skip("two minutes of processor time: with --long")
    remote = cluster.master if by == "its master" else cluster.start_connect()
    world.apply(a_table())
    rows = [row for _ in range(6) for day in DAYS for row in some_rows(20, utc(f"{day}T12:00"))]
    for start in range(0, len(rows), 40):
        world.drop(rows[start : start + 40])
    world.discover("2026-03-02T13:00")

    def run(*words: str) -> subprocess.Popen[bytes]:
        return prism(world, cluster, remote, *words)

    def kill_one_of_two_daemons() -> None:
        found = [has_own_daemon(process) for name, process in cluster.processes.items() if name.startswith("worker")]
        assert found == [by == "its master"] * 2, "a Connect server would keep the code of its first session"
        cluster.kill_executor(0)

    run_while_held(lambda: run("stream", "--now", "2026-03-02T13:00:00Z"), cluster, kill_one_of_two_daemons)
    assert charged(world) == []
    world.catalog("2026-03-03T01:00")  # closes both days
    run_while_held(
        lambda: run("merge", "--all", "--now", "2026-03-03T02:00:00Z"), cluster, lambda: cluster.kill_worker(1)
    )
    assert charged(world) == []
    world.catalog("2026-03-03T03:00")
    assert world.ids() == sorted(row["id"] for row in rows)
    partitions = [world.status(day, "2026-03-03T03:00") for day in DAYS]
    assert {(found.state, found.rows, found.unmerged_objects) for found in partitions} == {
        ("switched", len(rows) // 2, 0)
    }
