"""An object that kills the whole engine, workers that die for other reasons, and objects of an archive."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from prism_assets.domain.errors import AccessDenied, EngineUnavailable, ObjectArchived, StoreUnavailable
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import ConvertResult, ConvertTask, SourceVersion
from prism_assets.metadata.intake.unread_objects import Unread, load_unread
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.findings.objects import UNREAD_OBJECTS
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets.stages.stream.unread import retry_object
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.engines import FailingEngine, Through, another_worker, expire_leases, rest_is_over
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table(merge="{interval: 0}"))
    return world


@dataclass
class EngineThatIsKilled(Through):
    """An engine whose server dies over one object and is restarted from outside. With `gone` it never answers."""

    killer: str = ""
    gone: bool = False

    def probe(self) -> None:
        if self.gone:
            raise EngineUnavailable("Spark does not answer")

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        if self.gone or any(task.key == self.killer for task in tasks):
            raise EngineUnavailable("Spark does not answer")
        return self.inner.run(tasks, definitions)


@dataclass
class Answering(Through):
    """Gives each listed object a fixed answer."""

    failures: dict[str, Failure] = dataclasses.field(default_factory=dict)
    versions: dict[str, SourceVersion] = dataclasses.field(default_factory=dict)

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        for task in tasks:
            if task.key in self.versions:
                yield ConvertResult(staging_object_id=task.staging_object_id, changed=self.versions[task.key])
            elif task.key in self.failures:
                yield ConvertResult(staging_object_id=task.staging_object_id, failure=self.failures[task.key])
            else:
                yield from self.inner.run([task], definitions)


class StoresThatRefuse(Stores):
    """Hands out no byte of the staging bucket, and removes not everything."""

    kept = ""
    served = False

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        if self.kept and any(self.kept in key for key in keys):
            raise AccessDenied(f"s3://{bucket}/{keys[0]}: access denied")
        super().delete(bucket, keys)

    def _read_first_byte(self, bucket: str, key: str) -> None:
        if not self.served:
            raise StoreUnavailable(f"s3://{bucket}/{key}: not now")


def column(world: World, name: str) -> list[Any]:
    """Of all objects, in the order they came."""
    with world.context.database.begin() as connection:
        statement = f"SELECT {name} FROM prism_staging_objects ORDER BY prism_staging_object_id"
        return [row[0] for row in connection.exec_driver_sql(statement)]


def unread(world: World) -> list[tuple[Unread, int]]:
    """Returns the recorded numbers of unread objects by reason, after a check that status shows the same."""
    (table,) = read_status(world.context, now=utc(NOON))
    with world.context.database.begin() as connection:
        found = [(item.why, item.objects) for item in load_unread(connection, [1])]
    assert [item.count for item in table.findings if item.kind == UNREAD_OBJECTS] == [objects for _, objects in found]
    return found


def stream_often(worker: World, times: int) -> None:
    """Runs Stream several times, as sensors do after a failed run."""
    for _ in range(times):
        rest_is_over(worker)
        with suppress(EngineUnavailable):
            worker.stream(NOON)


def test_an_object_that_takes_the_engine_down_ends_up_alone_and_the_others_are_done(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(8)]
    worker = another_worker(events, EngineThatIsKilled(events.context.engine, killer=keys[5]))
    stream_often(worker, 14)
    assert column(events, "state") == ["done"] * 5 + ["failed"] + ["done"] * 2
    assert unread(events) == [(Unread.RETRIED_LATER, 1)]
    assert column(events, "last_error")[5] == "Spark does not answer over it alone"


def test_an_engine_that_is_not_there_charges_no_object_and_divides_no_batch(events: World) -> None:
    for _ in range(4):
        events.drop(some_rows(1, utc(NOON)))
    engine = EngineThatIsKilled(events.context.engine, gone=True)
    stream_often(another_worker(events, engine), 12)
    assert column(events, "attempts") == [0] * 4
    assert column(events, "batch_limit") == [4] * 4
    assert unread(events) == [(Unread.LONG_OUTAGE, 4)], "and it is told"
    engine.gone = False
    assert another_worker(events, engine).stream(NOON).batches == 1


def test_a_batch_that_was_committed_earlier_proves_nothing_about_workers_that_die_now(events: World) -> None:
    """Only work done at the same time proves something."""
    events.drop(some_rows(1, utc(NOON)))
    events.discover(NOON)
    assert start_batch(events.context, None) is not None
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    expire_leases(events)
    for _ in range(12):
        run_stream(events.context, now=utc(NOON), max_batches=0)
        rest_is_over(events)
        assert start_batch(events.context, None) is not None
        expire_leases(events)
    assert column(events, "state") == ["claimed", "done"]


def test_an_object_that_is_given_up_for_deaths_is_tried_again_by_itself(events: World) -> None:
    """Five deaths after a successful probe may also be five restarts of the host."""
    key = events.drop(some_rows(1, utc(NOON)))
    engine = EngineThatIsKilled(events.context.engine, killer=key)
    worker = another_worker(events, engine)
    stream_often(worker, 8)
    assert unread(events) == [(Unread.RETRIED_LATER, 1)]
    engine.killer = ""
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = clock_timestamp()")
    assert worker.stream(NOON).rows_out == 1


def test_a_new_version_of_an_object_that_was_refused_for_long_has_all_its_attempts(events: World) -> None:
    """An object out of an archive, or with another key of KMS, is often a copy with another ETag."""
    key = events.drop(some_rows(3, utc(NOON)))
    events.drop(some_rows(1, utc(NOON)))
    refused = Failure(message="access denied", transient=True, at_source=True)
    worker = another_worker(events, Answering(events.context.engine, failures={key: refused}))
    stream_often(worker, events.settings.max_refusals - 1)
    assert column(events, "attempts") == [events.settings.max_refusals - 1, 0]
    found = events.context.stores.head("staging", key)
    version = SourceVersion(etag=found.etag, content_length=found.content_length, last_modified=found.last_modified)
    rewritten = another_worker(events, Answering(events.context.engine, versions={key: version}))
    stream_often(rewritten, 1)
    assert (column(events, "state")[0], column(events, "attempts")[0]) == ("pending", 0)
    rest_is_over(events)
    assert events.stream(NOON).rows_out == 3


def test_an_object_of_an_archive_is_its_own_fault_though_all_that_was_read_before_is_archived_too(
    events: World,
) -> None:
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    key = events.drop(some_rows(1, utc(NOON)))
    archived = Failure(message="it lies in an archive", transient=True, at_source=True, of_object=True)
    engine = Answering(events.context.engine, failures={key: archived})
    context = dataclasses.replace(events.context, stores=StoresThatRefuse(events.settings.store))
    worker = another_worker(dataclasses.replace(events, context=context), engine)
    stream_often(worker, events.settings.max_refusals)
    assert unread(events) == [(Unread.RETRIED_LATER, 1)]


def test_what_s3_says_of_an_archived_object_is_told_as_that() -> None:
    from prism_assets.objectstore.store_errors import denied

    assert isinstance(denied("s3://b/k", "<Code>InvalidObjectState</Code>"), ObjectArchived)
    assert isinstance(denied("s3://b/k", "<Code>AccessDenied</Code>"), AccessDenied)


def test_a_worker_that_died_over_an_object_does_not_prove_that_its_bucket_serves_others(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(2)]
    failures = {
        keys[0]: Failure(message="the engine died", transient=False, killed=True),
        keys[1]: Failure(message="the store is silent", transient=True, at_source=True),
    }
    stream_often(another_worker(events, Answering(events.context.engine, failures=failures)), 1)
    assert column(events, "attempts") == [1, 0]


def test_objects_that_a_batch_died_with_have_their_turn_though_others_keep_coming(events: World) -> None:
    suspect = events.drop(some_rows(1, utc(NOON)))
    events.discover(NOON)
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET batch_limit = 1")
    for _ in range(12):
        events.drop(some_rows(1, utc(NOON)))
        events.discover(NOON)
        plan = start_batch(events.context, None)
        assert plan is not None
        if suspect in [task.key for task in plan.tasks]:
            return
    raise AssertionError("it waits for ever")


def test_rows_of_an_object_that_is_restarted_are_never_seen_twice(events: World) -> None:
    """The new start waits until uploads of the former start are removed, and for no other removal."""
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    keys = [events.drop(some_rows(2, utc(NOON))) for _ in range(2)]
    worker = another_worker(events, FailingEngine(events.context.engine, times=10, transient=False))
    stores = StoresThatRefuse(events.settings.store)
    stores.kept = "/prism-0000000000000000002.parquet"
    kept = dataclasses.replace(worker, context=dataclasses.replace(worker.context, stores=stores))
    stream_often(kept, 5)
    assert len(events.ids()) == 1 + 2, "what was uploaded for the first object cannot be removed, that of the other is"
    for key in keys:
        retry_object(events.context, f"s3://staging/{key}")
    healthy = dataclasses.replace(events, context=dataclasses.replace(events.context, stores=stores))
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_abandoned_uploads SET remove_time = clock_timestamp()")
    report = healthy.stream(NOON)
    assert report.objects == 1
    assert "could not be removed" in report.errors[-1]
    assert len(events.ids()) == 1 + 4
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_abandoned_uploads SET remove_time = clock_timestamp()")
    assert events.stream(NOON).objects == 1
    assert len(events.ids()) == 1 + 4


def test_an_object_whose_key_holds_other_rows_begins_anew_under_another(events: World) -> None:
    """After a failover to a lagging replica ids repeat, and so do keys."""
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    (first,) = [item.key for item in events.context.stores.list("lake", "") if "/live/" in item.key]
    lost = first.replace("prism-0000000000000000001", "prism-0000000000000000002")
    events.context.stores.put("lake", lost, events.context.stores.get("lake", first))
    events.drop(some_rows(3, utc(NOON)))
    assert events.stream(NOON).retried == 1
    assert column(events, "generation") == [0, 1]
    rest_is_over(events)
    assert events.stream(NOON).rows_out == 3
    assert len(events.ids()) == 4, "and what lay there is removed"
