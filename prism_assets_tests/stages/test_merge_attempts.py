"""Failing merges: parked and rarely retried for their own faults, uncharged for faults of the surroundings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from prism_assets.domain.errors import EngineFailed, EngineUnavailable
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Failure
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.engine.base import Engine
from prism_assets.metadata.files import merge_jobs, merge_queue
from prism_assets.stages.merge.plan import preview
from prism_assets.stages.merge.run import probe_engine, reclaim_expired, run_merge
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.engines import PoisonedEngine, Through, another_worker, expire_leases
from prism_assets_tests.stages.test_merge import a_closed_day, jobs
from prism_assets_tests.world import World

START = utc("2026-03-02T01:00")
HOUR = timedelta(hours=1)


@dataclass
class RefusingMerges(Through):
    """A store that answers reads of inputs with 503 while `on`, and serves all other requests."""

    on: bool = True

    def write(self, tasks: Sequence[WriteTask], definitions: Definitions) -> Iterator[WriteResult]:
        if not self.on:
            yield from self.inner.run(tasks, definitions)
            return
        for task in tasks:
            yield task.failed(Failure(message="answered 503 SlowDown", transient=True, at_source=True))


@dataclass
class FragileServer(Through):
    """A Spark server that dies whenever it merges one partition, and restarts after each run."""

    poison: str
    error: type[Exception] = EngineUnavailable
    up: bool = True

    def probe(self) -> None:
        if not self.up:
            raise EngineUnavailable("connection refused")

    def write(self, tasks: Sequence[WriteTask], definitions: Definitions) -> Iterator[WriteResult]:
        self.probe()
        if any(self.poison in (task.output_key or "") for task in tasks):
            self.up = False
            raise self.error("the server was killed for memory")
        return self.inner.run(tasks, definitions)


def few_tries(world: World) -> None:
    object.__setattr__(world.context, "settings", world.settings.model_copy(update={"merge_max_attempts": 3}))


def due(world: World, now: datetime) -> int:
    """Returns the number of due merges in the sensor's count."""
    with world.context.database.begin() as connection:
        return sum(item.due for item in merge_queue.due_merges(connection, now, world.settings.lease_seconds))


def until_parked(world: World, worker: World, now: datetime, limit: int = 400) -> datetime:
    for _ in range(limit):
        if any(job.parked for job in jobs(world)):
            return now
        run_merge(worker.context, now=now)
        now += timedelta(seconds=30)
    raise AssertionError("it is tried for ever")


def test_a_merge_that_a_store_refused_for_a_while_is_tried_again_by_itself(world: World) -> None:
    a_closed_day(world)
    engine = RefusingMerges(world.context.engine)
    worker = another_worker(world, engine)
    now = until_parked(world, worker, START)
    (job,) = jobs(world)
    assert job.due_time is not None
    assert now - START < HOUR
    assert (due(world, now), run_merge(worker.context, now=now).jobs) == (0, 0)
    said = " ".join(item.text for item in world.status("2026-03-01", str(now)[:16].replace(" ", "T")).findings)
    assert f"parked after 10 tries: answered 503 SlowDown. It is tried again at {job.due_time:%Y-%m-%d %H:%M}Z" in said
    engine.on = False
    assert due(world, job.due_time) == 1
    assert len(run_merge(worker.context, now=job.due_time).merged) == 1
    assert jobs(world) == []


def test_a_merge_that_stays_refused_needs_a_person_after_two_weeks_and_not_before(world: World) -> None:
    a_closed_day(world)
    few_tries(world)
    worker = another_worker(world, RefusingMerges(world.context.engine))
    now = until_parked(world, worker, START)
    while (retry := jobs(world)[0].due_time) is not None:
        now = retry
        assert run_merge(worker.context, now=now).jobs == 1
    assert timedelta(days=10) < now - START < timedelta(days=20)
    assert run_merge(worker.context, now=now + timedelta(days=99)).jobs == 0
    assert len(run_merge(world.context, now=now, ignore_schedule=True).merged) == 1


def test_hosts_that_restart_for_other_reasons_park_no_merge(world: World) -> None:
    a_closed_day(world)
    for _ in range(12):
        with world.context.database.begin() as connection:
            assert merge_jobs.claim_due(connection, now=START, limit=9, worker="dying")
        expire_leases(world)
        reclaim_expired(world.context, START)
    (job,) = jobs(world)
    assert (job.parked, job.attempts, job.last_error) == (False, 0, "the worker died or stood still")
    assert len(run_merge(world.context, now=START).merged) == 1


def test_a_job_that_kills_its_worker_alone_and_behind_a_probe_is_parked_and_parks_no_other(world: World) -> None:
    """The process dies silently. All jobs of its run return and are then taken one by one."""
    for table in ("log.a", "log.b", "log.c"):
        a_closed_day(world, table)
    few_tries(world)
    context, killer, now = world.context, jobs(world)[1].partition_id, START
    for _ in range(12):
        with context.database.begin() as connection:
            found = merge_jobs.claim_due(connection, now=now, limit=9, worker="dying")
        if found and found[0].died:
            assert len(found) == 1
            probe_engine(context, found)
        if found and killer not in [job.partition_id for job in found]:
            with context.database.begin() as connection:
                for job in found:
                    merge_jobs.delete(connection, job)
        expire_leases(world)
        reclaim_expired(context, now)
        now += timedelta(minutes=2)
    (left,) = jobs(world)
    assert (left.partition_id, left.parked, left.attempts) == (killer, True, 3)
    assert left.due_time is not None


@pytest.mark.parametrize("error", [EngineUnavailable, EngineFailed], ids=["it is gone", "it dies and is then gone"])
def test_a_partition_that_takes_the_server_down_is_parked_alone_and_the_others_are_merged(
    world: World, error: type[Exception]
) -> None:
    for table in ("log.a", "log.sick", "log.well"):
        a_closed_day(world, table)
    few_tries(world)
    engine = FragileServer(world.context.engine, "log.sick", error)
    worker = another_worker(world, engine)
    now = START
    for _ in range(12):
        engine.up = True
        with suppress(EngineUnavailable):
            run_merge(worker.context, now=now)
        now += timedelta(minutes=2)
        if len(jobs(world)) == 1 and jobs(world)[0].parked:
            break
    (job,) = jobs(world)
    assert (job.parked, job.attempts) == (True, 3)
    assert job.due_time is not None
    tables = {table.table_id: str(table.name) for table in world.context.choose_tables(None)}
    with world.context.database.begin() as connection:
        statement = "SELECT prism_table_id FROM prism_partitions JOIN prism_merge_ranges USING (prism_partition_id)"
        found = {tables[number] for number in connection.exec_driver_sql(statement).scalars()}
    assert found == {"log.a", "log.well"}


def test_a_dry_run_shows_the_merge_of_a_dead_worker_and_none_of_a_living_one(world: World) -> None:
    a_closed_day(world)
    with world.context.database.begin() as connection:
        (job,) = merge_jobs.claim_due(connection, now=START, limit=9, worker="another")
    assert preview(world.context, now=START, ignore_schedule=True) == []
    expire_leases(world)
    (planned,) = preview(world.context, now=START)
    assert planned.partition.partition_id == job.partition_id
    (merged,) = run_merge(world.context, now=START).merged
    assert planned.describe() == merged.plan


def _never_there(world: World) -> Engine:
    return FragileServer(world.context.engine, "none", up=False)


def _sick(world: World) -> Engine:
    return PoisonedEngine(world.context.engine, "none", sick=True)


@pytest.mark.parametrize("engine", [_never_there, _sick])
def test_an_engine_that_never_works_charges_no_merge(world: World, engine: Callable[[World], Engine]) -> None:
    for table in ("log.a", "log.b"):
        a_closed_day(world, table)
    worker = another_worker(world, engine(world))
    for turn in range(15):
        with pytest.raises(EngineUnavailable):
            run_merge(worker.context, now=START + turn * HOUR)
    assert [(job.attempts, job.parked) for job in jobs(world)] == [(0, False)] * 2
    assert len(run_merge(world.context, now=START + 16 * HOUR).merged) == 2
