"""Large objects and objects of dead batches, beside a live worker: a fault of Spark costs small objects nothing."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from prism_assets.domain.errors import EngineFailed, EngineUnavailable
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task
from prism_assets.engine.base import Engine
from prism_assets.engine.child import SMALL_BYTES
from prism_assets.metadata.intake import claims
from prism_assets.stages.live.convert import QUICK, SLOW, SMALL_SUSPECTS
from prism_assets.stages.live.new_days import NewDays
from prism_assets.stages.live.slow_lane import SlowLane
from prism_assets.stages.live.worker import LiveOptions, LiveWorker
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.engines import expire_leases, rest_is_over
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


@dataclass
class ASpark:
    """A Spark server that is away, or whose executors are killed over all work."""

    inner: Engine
    is_away: bool = False
    is_sick: bool = False
    jobs: list[int] = field(default_factory=list)

    slots = 1

    def probe(self) -> None:
        if self.is_away:
            raise EngineUnavailable("Spark does not answer")
        if self.is_sick:
            raise EngineFailed("the executor was killed")

    def run(self, tasks: Sequence[Task[Any]], definitions: Definitions) -> Iterator[Any]:
        self.jobs.append(len(tasks))
        self.probe()
        return self.inner.run(tasks, definitions)


@pytest.fixture
def spark(world: World) -> ASpark:
    """Spark beside the engine of small objects, over one table."""
    world.apply(a_table())
    return ASpark(world.context.engine)


def a_worker(world: World, spark: ASpark) -> LiveWorker:
    """A worker whose lane takes its turns in the test's thread."""
    worker = LiveWorker(world.context, LiveOptions(), clock=lambda: utc(NOON))
    worker._new_days = NewDays(wait_seconds=60.0)
    worker.slow_lane = SlowLane(world.context, None, spark, lambda: utc(NOON))
    return worker


def turns(worker: LiveWorker) -> list[str]:
    """A turn of the loop, of the lane, and of the loop again. Returns what the worker told."""
    told: list[str] = []
    worker._tell = told.append
    worker.turn(threading.Event())
    worker.slow_lane.turn()
    worker.turn(threading.Event())
    return told


def drop_large(world: World) -> list[int]:
    """Drops an object above the limit of small ones: lines with many blanks at their end."""
    rows = some_rows(90, utc(NOON))
    lines = b"".join(json.dumps(row).encode() + b" " * (SMALL_BYTES // 80) + b"\n" for row in rows)
    world.drop([], body=gzip.compress(lines, compresslevel=0, mtime=0))
    return [row["id"] for row in rows]


def drop_small(world: World, count: int = 2) -> list[int]:
    rows = [some_rows(3, utc(NOON)) for _ in range(count)]
    for of_object in rows:
        world.drop(of_object)
    return [row["id"] for of_object in rows for row in of_object]


def objects(world: World) -> list[tuple[bool, str, int, int | None]]:
    """Whether it is large, state, attempts and limit of each object, in the order of their ids."""
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT content_length, state, attempts, batch_limit FROM prism_staging_objects "
            "ORDER BY prism_staging_object_id"
        ).all()
    return [(row.content_length > SMALL_BYTES, row.state, row.attempts, row.batch_limit) for row in rows]


def test_small_objects_do_not_wait_for_a_spark_that_is_away(world: World, spark: ASpark) -> None:
    small = drop_small(world)
    drop_large(world)
    spark.is_away = True
    told = turns(a_worker(world, spark))
    assert world.ids() == small
    assert objects(world) == [(False, "done", 0, None), (False, "done", 0, None), (True, "pending", 0, 1)]
    assert "Spark does not answer" in told


def test_a_large_object_is_converted_once_spark_is_back(world: World, spark: ASpark) -> None:
    large = drop_large(world)
    spark.is_away = True
    worker = a_worker(world, spark)
    turns(worker)
    spark.is_away = False
    worker.slow_lane._next_try = 0.0
    rest_is_over(world)
    turns(worker)
    assert world.ids() == large


def test_small_objects_of_a_dead_batch_are_converted_while_spark_is_away(world: World, spark: ASpark) -> None:
    small = drop_small(world)
    world.discover(NOON)
    assert start_batch(world.context, None) is not None
    expire_leases(world)
    spark.is_away = True
    worker = a_worker(world, spark)
    while worker.vitals.objects < 2:
        done = worker.vitals.objects
        turns(worker)
        assert worker.vitals.objects > done, "a turn converted nothing"
    assert world.ids() == small


def test_a_large_object_is_not_blamed_while_spark_fails_over_all_work(world: World, spark: ASpark) -> None:
    drop_large(world)
    spark.is_sick = True
    worker = a_worker(world, spark)
    for _ in range(7):
        turns(worker)
        worker.slow_lane._next_try = 0.0
        rest_is_over(world)
    assert len(spark.jobs) >= 1
    assert objects(world) == [(True, "pending", 0, 1)]


def test_each_object_is_wanted_by_one_lane(world: World, spark: ASpark) -> None:
    drop_small(world, 2)
    drop_large(world)
    world.discover(NOON)
    (table,) = world.context.choose_tables(None)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET batch_limit = 1 WHERE prism_staging_object_id = 1")
        assert all(claims.has_pending(connection, [table.table_id], one) for one in (QUICK, SLOW, SMALL_SUSPECTS))
    found = {}
    for wanted in (QUICK, SMALL_SUSPECTS, SLOW):
        plan = start_batch(world.context, [table.table_id], wanted)
        assert plan is not None
        found[wanted] = [(item.content_length > SMALL_BYTES, item.batch_limit) for item in plan.claimed.values()]
    assert found == {QUICK: [(False, None)], SMALL_SUSPECTS: [(False, 1)], SLOW: [(True, None)]}
    with world.context.database.begin() as connection:
        assert not claims.has_pending(connection, [table.table_id])
