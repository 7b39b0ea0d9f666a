"""Merge: leases, heartbeats, failures, and jobs taken over by other workers."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from prism_assets.domain.errors import EngineUnavailable, MissingBucket
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Failure
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.files.merge_jobs import JobStatus
from prism_assets.stages.merge.plan import preview
from prism_assets.stages.merge.run import reclaim_expired, run_merge
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.findings import says
from prism_assets_tests.stages.catalogs import until_true, with_lease
from prism_assets_tests.stages.engines import (
    FailingEngine,
    PausingEngine,
    PoisonedEngine,
    Through,
    another_worker,
    expire_leases,
    in_background,
)
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"


def a_closed_day(world: World, table: str = "log.events", merge: str = "{interval: 3600}") -> list[int]:
    """Makes a closed partition of two unmerged objects. Returns the ids of its rows."""
    world.apply(a_table(table, merge=merge))
    written = some_rows(10, utc(NOON))
    for part in (written[:5], written[5:]):
        world.drop(part, stream=table.split(".")[1])
    world.stream(NOON)
    world.catalog(NOON)
    world.catalog(AFTER)
    return [row["id"] for row in written]


def jobs(world: World) -> list[JobStatus]:
    with world.context.database.begin() as connection:
        return merge_jobs.load_status(connection)


def ranges(world: World) -> int:
    with world.context.database.begin() as connection:
        statement = "SELECT count(*) FROM prism_merge_ranges WHERE lower_bound IS NOT NULL"
        return int(connection.exec_driver_sql(statement).scalar_one())


def test_a_range_is_as_old_as_its_commit(world: World) -> None:
    """The run may have begun hours before."""
    a_closed_day(world)
    with world.context.database.begin() as connection:
        before = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    world.merge(AFTER, everything=True)
    with world.context.database.begin() as connection:
        written = "SELECT min(least(create_time, update_time)), clock_timestamp() FROM prism_merge_ranges"
        first, after = connection.exec_driver_sql(written).one()
    assert before < first < after


def test_h4_a_heartbeat_keeps_a_long_job_with_its_worker(world: World) -> None:
    """The merge takes longer than a lease.

    With a single heartbeat a second worker would run it, too.
    """
    a_closed_day(world)
    works, goes_on = threading.Event(), threading.Event()

    def pause() -> None:
        works.set()
        assert goes_on.wait(120)

    worker = another_worker(world, PausingEngine(world.context.engine, pause))
    merged: list[int] = []
    thread = in_background(lambda: merged.append(len(run_merge(with_lease(worker, 0.3), now=utc(AFTER)).merged)))
    try:
        assert works.wait(120)
        expire_leases(world)
        until_true(world, "SELECT heartbeat_time > now() - interval '1 minute' FROM prism_merge_jobs")
        report = run_merge(world.context, now=utc(AFTER))
    finally:
        goes_on.set()
        thread.join()
    assert (report.jobs + report.reclaimed, merged) == (0, [1])


def test_h4_a_job_without_a_heartbeat_is_taken_over(world: World) -> None:
    """The control of the test above: the lease does run out."""
    a_closed_day(world)
    with world.context.database.begin() as connection:
        merge_jobs.claim_due(connection, now=utc(AFTER), limit=1, worker="dead")
    assert reclaim_expired(world.context, utc(AFTER)) == 0
    expire_leases(world)
    report = world.merge(AFTER)
    assert (report.reclaimed, len(report.merged)) == (1, 1)


def test_a_job_that_lost_its_lease_commits_nothing(world: World) -> None:
    ids = a_closed_day(world)

    def meanwhile() -> None:
        expire_leases(world)
        assert len(world.merge(AFTER).merged) == 1

    zombie = another_worker(world, PausingEngine(world.context.engine, meanwhile)).merge(AFTER)
    assert (zombie.jobs, zombie.merged, zombie.errors) == (1, (), ())
    assert ranges(world) == 1
    assert world.catalog(AFTER).tables[0].switched
    assert world.ids() == ids


def test_a_job_that_failed_for_a_worker_without_lease_is_not_put_back(world: World) -> None:
    a_closed_day(world)

    def meanwhile() -> None:
        expire_leases(world)
        assert len(world.merge(AFTER).merged) == 1

    failing = FailingEngine(world.context.engine, times=100)
    zombie = another_worker(world, PausingEngine(failing, meanwhile)).merge(AFTER)
    assert zombie.errors == ()
    assert jobs(world) == []


@pytest.mark.parametrize(
    "newer",
    [a_table(columns=["{name: color, type: string}"]), a_table(merge="{interval: 3600, sort_by: [time, id]}")],
    ids=["another column", "another order"],
)
def test_a_worker_without_lease_does_not_change_a_merged_object_by_an_older_definition(
    world: World, newer: str
) -> None:
    """It writes a key again that the other worker has written and published meanwhile."""
    ids = a_closed_day(world)
    published: list[bytes] = []

    def meanwhile() -> None:
        world.apply(newer)
        expire_leases(world)  # at once before the merge, as the heart of the other worker beats on
        assert len(world.merge(AFTER).merged) == 1
        world.catalog(AFTER)
        published.append(merged_object(world))

    another_worker(world, PausingEngine(world.context.engine, meanwhile)).merge(AFTER)
    assert world.ids() == ids
    assert merged_object(world) == published[0]


def merged_object(world: World) -> bytes:
    (item,) = world.partition(DAY).objects
    return world.context.stores.get("lake", item.url.removeprefix("s3://lake/"))


def test_a_failed_job_waits_longer_each_time_and_is_parked_in_the_end(world: World) -> None:
    a_closed_day(world)
    object.__setattr__(world.context, "settings", world.settings.model_copy(update={"merge_max_attempts": 3}))
    worker = another_worker(world, FailingEngine(world.context.engine, times=100, transient=False))
    waits = []
    for turn in range(3):
        now = f"2026-03-02T0{turn + 1}:00"
        assert len(worker.merge(now).errors) == 1
        assert worker.merge(now).jobs == 0
        waits.append((jobs(world)[0].schedule_time - utc(now)).total_seconds())
    assert waits == [1, 2, 0]
    (job,) = jobs(world)
    assert (job.parked, job.attempts, job.last_error) == (True, 3, "the store coughed")
    assert worker.merge("2026-03-09T00:00").jobs == 0
    assert "parked after 3 tries: the store coughed" in " ".join(says(world.status(DAY, AFTER).findings))


def test_an_outage_is_waited_for_and_not_charged_to_the_job(world: World) -> None:
    a_closed_day(world)
    worker = another_worker(world, FailingEngine(world.context.engine, times=100))
    for turn in range(4):
        assert len(worker.merge(f"2026-03-02T0{turn + 1}:00").errors) == 1
    (job,) = jobs(world)
    assert (job.parked, job.attempts, job.last_error) == (False, 0, "the store coughed")
    assert len(world.merge("2026-03-02T05:00").merged) == 1


def test_a_parked_job_is_merged_when_somebody_asks_for_all(world: World) -> None:
    a_closed_day(world)
    object.__setattr__(world.context, "settings", world.settings.model_copy(update={"merge_max_attempts": 1}))
    another_worker(world, FailingEngine(world.context.engine, times=1, transient=False)).merge(AFTER)
    assert world.merge(AFTER).jobs == 0
    assert len(world.merge(AFTER, everything=True).merged) == 1
    assert jobs(world) == []


@dataclass
class _Patience(Through):
    """Fails every merge, and ends the test if merges repeat without end."""

    left: int

    def write(self, tasks: Sequence[WriteTask], definitions: Definitions) -> Iterator[WriteResult]:
        self.left -= 1
        assert self.left, "one run tries the same job for ever"
        return FailingEngine(self.inner, times=100).run(tasks, definitions)


def test_asking_for_all_tries_a_failing_job_once(world: World) -> None:
    a_closed_day(world)
    worker = another_worker(world, _Patience(world.context.engine, left=30))
    assert len(worker.merge(AFTER, everything=True).errors) == 1


def test_a_poisonous_partition_ends_up_alone(world: World) -> None:
    for table in ("log.a", "log.b", "log.c"):
        a_closed_day(world, table)
    engine = PoisonedEngine(world.context.engine, "log.b/")
    report = another_worker(world, engine).merge(AFTER)
    assert len(report.merged) == 2
    assert report.errors == (f"log.b {DAY}: the worker was killed",)


def test_an_input_that_is_missing_fails_its_job_and_no_other(world: World) -> None:
    a_closed_day(world, "log.sick")
    a_closed_day(world, "log.well")
    for item in list(world.context.stores.list("lake", "")):
        if "log.sick/live" in item.key:
            world.context.stores.delete("lake", [item.key])
    report = world.merge(AFTER)
    assert len(report.merged) == 1
    assert len(report.errors) == 1
    assert "does not exist" in report.errors[0]


def test_a_partition_that_cannot_be_planned_fails_its_job_and_no_other(world: World) -> None:
    a_closed_day(world, "log.sick")
    a_closed_day(world, "log.well")
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_table_definitions SET definition = jsonb_set(definition, '{merge,target_bytes}', '0') "
            "WHERE definition->'name'->>'table' = 'sick'"
        )
    report = world.merge(AFTER)
    assert len(report.merged) == 1
    assert len(report.errors) == 1
    assert report.errors[0].startswith(f"log.sick {DAY}: the merge cannot be planned: ZeroDivisionError")
    assert [job.running for job in jobs(world)] == [False]


def test_an_engine_that_is_not_there_costs_no_attempt_and_holds_nothing(world: World) -> None:
    a_closed_day(world)

    def gone() -> None:
        raise EngineUnavailable("Spark does not answer")

    with pytest.raises(EngineUnavailable):
        another_worker(world, PausingEngine(world.context.engine, gone)).merge(AFTER)
    (job,) = jobs(world)
    assert (job.running, job.attempts, job.parked) == (False, 0, False)
    assert len(world.merge(AFTER).merged) == 1


def test_the_preview_is_what_is_then_carried_out(world: World) -> None:
    a_closed_day(world)
    (plan,) = preview(world.context, now=utc(AFTER))
    assert plan.describe() == f"log.events {DAY}: write new (0, 2] with 2 objects"
    assert jobs(world)[0].running is False
    assert world.merge(AFTER).merged[0].plan == plan.describe()
    assert preview(world.context, now=utc(AFTER)) == []


def test_every_merge_leaves_a_line_in_the_log(world: World) -> None:
    a_closed_day(world)
    another_worker(world, FailingEngine(world.context.engine, times=1)).merge(AFTER)
    world.merge("2026-03-02T01:00")
    with world.context.database.begin() as connection:
        statement = "SELECT worker, input_objects, output_objects, row_count, error FROM prism_merge_job_log ORDER BY 1"
        lines = [tuple(row) for row in connection.exec_driver_sql(statement)]
    assert lines == [("another", 2, 1, 10, "the store coughed"), (world.context.worker, 2, 1, 10, None)]


@dataclass
class _Answering(Through):
    """Changes the results of some partitions before they are handed over."""

    change: Callable[[WriteResult], WriteResult]

    def write(self, tasks: Sequence[WriteTask], definitions: Definitions) -> Iterator[WriteResult]:
        for result in self.inner.run(tasks, definitions):
            yield self.change(result)


def test_a_job_that_is_refused_behind_its_lease_gives_back_none_of_its_neighbours(world: World) -> None:
    """Its rows do not add up, and another worker already has it. The following jobs are at fault for neither."""
    for table in ("log.a", "log.b", "log.c"):
        a_closed_day(world, table)

    def change(result: WriteResult) -> WriteResult:
        if result.written is None or "log.a/" not in result.written.key:
            return result
        with world.context.database.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE prism_merge_jobs SET lease_token = gen_random_uuid() FROM prism_partitions "
                "JOIN prism_tables USING (prism_table_id) WHERE table_name = 'a' "
                "AND prism_merge_jobs.prism_partition_id = prism_partitions.prism_partition_id"
            )
        wrong = dataclasses.replace(result.written, row_count=result.written.row_count + 1)
        return dataclasses.replace(result, written=wrong)

    report = another_worker(world, _Answering(world.context.engine, change)).merge(AFTER)
    assert (report.jobs, len(report.merged), report.errors) == (3, 2, ())
    assert ranges(world) == 2


def test_an_input_that_the_store_refuses_is_charged_to_its_job_if_others_are_served(world: World) -> None:
    """An input in an archive, for example: the job is finally parked and reported, and not tried for ever."""
    a_closed_day(world)
    object.__setattr__(world.context, "settings", world.settings.model_copy(update={"merge_max_attempts": 3}))
    refused = Failure(message="access denied", transient=True, at_source=True)
    worker = another_worker(
        world, _Answering(world.context.engine, lambda result: dataclasses.replace(result, failure=refused))
    )
    for turn in range(3):
        assert len(worker.merge(f"2026-03-02T0{turn + 1}:00").errors) == 1
    (job,) = jobs(world)
    assert (job.parked, job.attempts, job.last_error) == (True, 3, "access denied")


def test_a_store_that_serves_none_of_the_inputs_is_waited_for(world: World) -> None:
    a_closed_day(world)
    refused = Failure(message="access denied", transient=True, at_source=True)

    def change(result: WriteResult) -> WriteResult:
        (world.root / "buckets" / "lake").rename(world.root / "away")
        return dataclasses.replace(result, failure=refused)

    with pytest.raises(MissingBucket):  # the next claim compares erasures with the lake
        another_worker(world, _Answering(world.context.engine, change)).merge(AFTER)
    (world.root / "away").rename(world.root / "buckets" / "lake")
    (job,) = jobs(world)
    assert (job.parked, job.attempts, job.last_error) == (False, 0, "access denied")
