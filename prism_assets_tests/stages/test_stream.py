"""Stream: engines that die, transient failures, motionless workers, and leftovers of given-up objects."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from prism_assets.domain.errors import EngineUnavailable, LeaseLost
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import ConvertResult
from prism_assets.stages.stream.commit import commit_batch, reclaim_expired
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.catalogs import until_true, with_lease
from prism_assets_tests.stages.engines import (
    FailingEngine,
    PausingEngine,
    PoisonedEngine,
    another_worker,
    expire_leases,
    in_background,
    rest_is_over,
)
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table())
    return world


def states(world: World) -> list[tuple[Any, ...]]:
    with world.context.database.begin() as connection:
        statement = "SELECT state, attempts FROM prism_staging_objects ORDER BY prism_staging_object_id"
        return [tuple(row) for row in connection.exec_driver_sql(statement).all()]


def lake_keys(world: World) -> list[str]:
    return sorted(item.key for item in world.context.stores.list("lake", ""))


def test_objects_are_done_when_their_batch_was_committed(events: World) -> None:
    """The start of the run may be hours earlier."""
    events.drop([], body=b"broken\n")
    with events.context.database.begin() as connection:
        before = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    events.stream(NOON)
    with events.context.database.begin() as connection:
        (done,) = connection.exec_driver_sql("SELECT finish_time FROM prism_staging_objects").scalars()
        (set_aside,) = connection.exec_driver_sql("SELECT create_time FROM prism_quarantine").scalars()
        assert before < min(done, set_aside)
        assert max(done, set_aside) < connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()


def test_a_poisonous_object_ends_up_alone_and_failed_and_the_others_are_done(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(9)]
    engine = PoisonedEngine(events.context.engine, keys[4])
    worker = another_worker(events, engine)
    failed: tuple[str, ...] = ()
    for _ in range(events.settings.max_attempts):
        rest_is_over(events)
        failed += worker.stream(NOON).errors
    assert failed == (f"gave up s3://staging/{keys[4]}: the worker was killed; it is tried again by itself",)
    assert states(events).count(("done", 0)) == 8
    assert states(events)[4] == ("failed", events.settings.max_attempts)
    events.catalog(NOON)
    assert len(events.ids()) == 8


def test_a_job_that_dies_is_divided_by_two_until_the_poison_is_alone(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(8)]
    engine = PoisonedEngine(events.context.engine, keys[0])
    report = another_worker(events, engine).stream(NOON)
    assert sorted(engine.jobs) == [1, 1, 2, 2, 4, 4, 8]
    assert (report.objects, report.retried) == (7, 1)


def test_a_passing_failure_is_tried_again_after_a_growing_pause(events: World) -> None:
    events.drop(some_rows(3, utc(NOON)))
    worker = another_worker(events, FailingEngine(events.context.engine, times=3))
    pauses = []
    for _ in range(3):
        assert worker.stream(NOON).retried == 1
        with events.context.database.begin() as connection:
            statement = (
                "SELECT extract(epoch FROM retry_time - clock_timestamp()), last_error FROM prism_staging_objects"
            )
            pause, error = connection.exec_driver_sql(statement).one()
        pauses.append(round(float(pause)))
        assert error == "the store coughed"
        assert worker.stream(NOON).batches == 0
        rest_is_over(events)
    assert pauses == [1, 2, 4]
    assert worker.stream(NOON).rows_out == 3
    assert states(events) == [("done", 0)], "what the store did is not charged to the object"


def test_a_passing_failure_gets_more_patience_than_a_lasting_one(events: World) -> None:
    events.drop(some_rows(3, utc(NOON)))
    most = events.settings.max_attempts
    worker = another_worker(events, FailingEngine(events.context.engine, times=most + 3))
    for _ in range(most + 3):
        assert worker.stream(NOON).errors == ()
        rest_is_over(events)
    assert worker.stream(NOON).rows_out == 3


def test_a_lasting_failure_is_given_up_after_its_attempts(events: World) -> None:
    events.drop(some_rows(3, utc(NOON)))
    worker = another_worker(events, FailingEngine(events.context.engine, times=100, transient=False))
    reports = []
    for _ in range(events.settings.max_attempts):
        reports.append(worker.stream(NOON))
        rest_is_over(events)
    assert [len(report.errors) for report in reports] == [0, 0, 0, 0, 1]
    assert worker.stream(NOON).batches == 0


def test_a_given_up_object_leaves_no_key_behind(events: World) -> None:
    """On any day with its rows, in the live and the delayed tier."""
    others = some_rows(2, utc("2026-02-20T12:00"))
    events.drop(others)
    events.stream(NOON)
    events.catalog(NOON)
    before = lake_keys(events)
    hostile = some_rows(1, utc("2026-02-20T12:00")) + some_rows(2, utc(NOON)) + some_rows(1, utc("2026-03-03T12:00"))
    events.drop(hostile)
    worker = another_worker(events, FailingEngine(events.context.engine, times=100, transient=False))
    for turn in range(events.settings.max_attempts):
        worker.stream(NOON)
        rest_is_over(events)
        assert (len(lake_keys(events)) == len(before)) == (turn == events.settings.max_attempts - 1)
    assert lake_keys(events) == before
    assert events.ids() == [row["id"] for row in others]


def test_a_retry_writes_the_same_keys_with_the_same_rows(events: World) -> None:
    events.drop(some_rows(3, utc(NOON), every=timedelta(days=1)))
    worker = another_worker(events, FailingEngine(events.context.engine, times=1))
    worker.stream(NOON)
    first = [(item.key, item.content_length) for item in events.context.stores.list("lake", "")]
    bodies = [events.context.stores.get("lake", key) for key, _ in first]
    rest_is_over(events)
    worker.stream(NOON)
    assert [events.context.stores.get("lake", key) for key, _ in first] == bodies
    assert len(lake_keys(events)) == len(first)


def test_a_batch_that_lost_its_lease_commits_nothing(events: World) -> None:
    """It stood still, another worker did its work, and then it continues."""
    written = some_rows(5, utc(NOON))
    events.drop(written)
    events.discover(NOON)

    def meanwhile() -> None:
        expire_leases(events)
        assert events.stream(NOON).reclaimed == 1

    zombie = another_worker(events, PausingEngine(events.context.engine, meanwhile))
    assert zombie.stream(NOON).objects == 0
    events.catalog(NOON)
    assert events.ids() == [row["id"] for row in written]
    assert states(events) == [("done", 1)]


def test_a_batch_that_lost_its_lease_removes_nothing_that_others_committed(events: World) -> None:
    """Its attempt failed for good, but the other worker's attempt succeeded."""
    written = some_rows(5, utc(NOON))
    events.drop(written)
    events.discover(NOON)
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET attempts = 4")
    plan = start_batch(events.context, None)
    assert plan is not None
    expire_leases(events)
    assert events.stream(NOON).rows_out == 5
    lost = ConvertResult(
        staging_object_id=plan.tasks[0].staging_object_id, failure=Failure(message="no memory", transient=False)
    )
    with pytest.raises(LeaseLost):
        commit_batch(events.context, plan, [lost], utc(NOON))
    events.catalog(NOON)
    assert events.ids() == [row["id"] for row in written]


def test_a_batch_with_a_living_heartbeat_is_left_alone(events: World) -> None:
    """The job takes longer than a lease. Without renewal a second worker would take it."""
    events.drop(some_rows(5, utc(NOON)))
    events.discover(NOON)
    works, goes_on = threading.Event(), threading.Event()

    def pause() -> None:
        works.set()
        assert goes_on.wait(120)

    worker = another_worker(events, PausingEngine(events.context.engine, pause))
    reports: list[int] = []
    thread = in_background(lambda: reports.append(run_stream(with_lease(worker, 0.3), now=utc(NOON)).rows_out))
    try:
        assert works.wait(120)
        expire_leases(events)
        until_true(events, "SELECT heartbeat_time > now() - interval '1 minute' FROM prism_stream_batches")
        stolen = reclaim_expired(events.context).reclaimed
    finally:
        goes_on.set()
        thread.join()
    assert (stolen, reports) == (0, [5])


def test_the_first_batch_that_sees_nothing_leaves_no_row(events: World) -> None:
    assert events.stream(NOON).batches == 0
    with events.context.database.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM prism_stream_batches").scalar_one() == 0


def test_batches_follow_until_nothing_is_pending(world: World) -> None:
    world.apply(a_table())
    for _ in range(5):
        world.drop(some_rows(1, utc(NOON)))
    small = world.settings.model_copy(update={"stream_max_objects": 2})
    object.__setattr__(world.context, "settings", small)
    report = world.stream(NOON)
    assert (report.batches, report.objects) == (3, 5)


def test_tables_are_converted_by_name(world: World) -> None:
    world.apply(a_table(), a_table("log.other"))
    world.drop(some_rows(1, utc(NOON)))
    world.drop(some_rows(2, utc(NOON)), stream="other")
    world.discover(NOON)
    assert run_stream(world.context, now=utc(NOON), names=["log.other"]).rows_out == 2
    assert run_stream(world.context, now=utc(NOON)).rows_out == 1


def test_an_engine_that_is_not_there_costs_no_attempt_and_holds_nothing(events: World) -> None:
    events.drop(some_rows(1, utc(NOON)))

    def gone() -> None:
        raise EngineUnavailable("Spark does not answer")

    worker = another_worker(events, PausingEngine(events.context.engine, gone))
    with pytest.raises(EngineUnavailable):
        worker.stream(NOON)
    assert states(events) == [("pending", 0)]
    assert events.stream(NOON).rows_out == 1


def test_an_engine_that_fails_at_everything_is_sick_and_no_object_is_blamed(events: World) -> None:
    for _ in range(16):
        events.drop(some_rows(1, utc(NOON)))
    engine = PoisonedEngine(events.context.engine, poison="", sick=True)
    with pytest.raises(EngineUnavailable, match="fails whatever it is given"):
        another_worker(events, engine).stream(NOON)
    assert states(events) == [("pending", 0)] * 16
