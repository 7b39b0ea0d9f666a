"""The fault of a failure: an object's own fault is charged and ends.

A fault of the surroundings is charged to nobody.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from prism_assets.domain.errors import EngineUnavailable, InvariantBroken, PrismError, StoreUnavailable, WrongUse
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import ConvertResult, ConvertTask, SourceVersion
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.commit import commit_batch, reclaim_expired
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import probe_engine, run_stream
from prism_assets.stages.stream.unread import give_up_object, retry_object
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.stages.engines import (
    FailingEngine,
    PoisonedEngine,
    Through,
    another_worker,
    expire_leases,
    rest_is_over,
)
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON, AFTER = f"{DAY}T12:00", "2026-03-02T00:10"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table(merge="{interval: 0}"))
    return world


@dataclass
class RefusingEngine(Through):
    """An engine whose store refuses some objects, like objects of an archive, and serves all others."""

    refused: set[str]
    reads: int = 0

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        for task in tasks:
            if task.key not in self.refused:
                yield from self.inner.run([task], definitions)
                continue
            self.reads += 1
            failure = Failure(message="access denied", transient=True, at_source=True)
            yield ConvertResult(staging_object_id=task.staging_object_id, failure=failure)


@dataclass
class ForgetfulEngine(Through):
    """Ends without a result for one object."""

    forgotten: str

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        for task, result in zip(tasks, self.inner.run(tasks, definitions), strict=True):
            if task.key != self.forgotten:
                yield result


class StoresThatKeep(Stores):
    """Deletes nothing."""

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        raise StoreUnavailable(f"s3://{bucket}/{keys[0]}: slow down")


class StoresWithoutMemory(Stores):
    """One object is too much for the memory there is."""

    def __init__(self, config: StoreConfig, key: str) -> None:
        super().__init__(config)
        self._too_much = key

    def get_chunks(
        self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None, chunk: int | None = None
    ) -> Iterator[bytes]:
        if key == self._too_much:
            raise MemoryError
        return super().get_chunks(bucket, key, etag=etag, length=length, chunk=chunk)


def objects(world: World) -> list[tuple[Any, ...]]:
    """State, attempts and generation of each object, in the order they came."""
    with world.context.database.begin() as connection:
        statement = "SELECT state, attempts, generation FROM prism_staging_objects ORDER BY prism_staging_object_id"
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def put_forward(world: World, table: str, column: str) -> None:
    """Moves a future time of a column to the past."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {table} SET {column} = {column} - interval '30 days'")


def live_keys(world: World) -> list[str]:
    return sorted(item.key for item in world.context.stores.list("lake", "") if "/live/" in item.key)


def until_given_up(world: World, worker: World, turns: int = 20) -> list[str]:
    """Runs a worker until an object is given up; returns the sentences about it."""
    for _ in range(turns):
        rest_is_over(world)
        if failed := worker.stream(NOON).errors:
            return list(failed)
    raise AssertionError("it is tried for ever")


# Removals from S3


def test_objects_are_given_up_and_others_converted_while_the_store_deletes_nothing(events: World) -> None:
    """Seventy deleted staging objects, and a store that answers no DeleteObjects."""
    gone = [events.drop(some_rows(1, utc(NOON))) for _ in range(70)]
    events.discover(NOON)
    for key in gone:
        (events.root / "buckets" / "staging" / key).unlink()
    stores = StoresThatKeep(events.settings.store)
    worker = dataclasses.replace(events, context=dataclasses.replace(events.context, stores=stores))
    for _ in range(events.settings.max_attempts):
        rest_is_over(events)
        report = worker.stream(NOON)
    assert sum("gave up" in sentence for sentence in report.errors) == 70
    assert "could not be removed" in report.errors[-1]
    rows = some_rows(2, utc(NOON))
    events.drop(rows)
    assert worker.stream(NOON).rows_out == 2
    events.catalog(NOON)
    assert events.ids() == [row["id"] for row in rows]
    assert [row[0] for row in objects(events)] == ["failed"] * 70 + ["done"]
    assert events.stream(NOON).problems == (), "and it ends when the store deletes again"


def test_the_network_is_never_asked_inside_a_transaction(events: World) -> None:
    table = events.context.choose_tables(None)[0]
    calls: list[Callable[[], object]] = [
        lambda: events.context.stores.get("staging", "a"),
        lambda: events.context.stores.delete("lake", ["a"]),
        lambda: list(events.context.stores.list("lake", "")),
        lambda: events.glue.differs(table, "s3://lake/"),
    ]
    for call in calls:
        with pytest.raises(InvariantBroken, match="inside a transaction"), events.context.database.begin():
            call()


def test_what_a_given_up_object_left_is_looked_at_twice_and_then_forgotten(events: World) -> None:
    """A task that outlived its driver may upload after the first removal."""
    events.drop(some_rows(2, utc(NOON)))
    worker = another_worker(events, FailingEngine(events.context.engine, times=100, transient=False))
    until_given_up(events, worker)
    assert live_keys(events) == []
    table = events.context.choose_tables(None)[0]
    late = events.context.lake.keys(table).small_object(utc(NOON).date(), 1, delayed=False)
    events.context.stores.put("lake", late, b"of a task that was still running")
    put_forward(events, "prism_abandoned_uploads", "remove_time")
    assert events.stream(NOON).problems == ()
    assert live_keys(events) == []
    with events.context.database.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM prism_abandoned_uploads").scalar_one() == 0


# One object refused by the store


def test_an_object_that_is_refused_while_others_are_served_keeps_no_day_from_closing(events: World) -> None:
    archived = events.drop(some_rows(3, utc(NOON)))
    engine = RefusingEngine(events.context.engine, {archived})
    worker = another_worker(events, engine)
    others = some_rows(2, utc(NOON))
    events.drop(others)
    assert worker.stream(NOON).objects == 1
    events.catalog(NOON)
    failed = until_given_up(events, worker)
    assert failed == [f"gave up s3://staging/{archived}: access denied; it is tried again by itself"]
    assert engine.reads == events.settings.max_refusals
    for _ in range(2):
        report = events.catalog(AFTER)
        events.merge(AFTER)
    assert report.tables[0].waiting == ()
    events.catalog(AFTER)
    assert events.status(DAY, AFTER).state == "switched"
    assert events.ids() == [row["id"] for row in others]


def test_an_object_restored_from_the_archive_is_taken_up_by_itself_also_behind_the_close(events: World) -> None:
    rows = some_rows(3, utc(NOON))
    archived = events.drop(rows)
    engine = RefusingEngine(events.context.engine, {archived})
    worker = another_worker(events, engine)
    others = some_rows(2, utc(NOON))
    events.drop(others)
    worker.stream(NOON)
    events.catalog(NOON)
    until_given_up(events, worker)
    for _ in range(3):
        events.catalog(AFTER)
        events.merge(AFTER)
    assert worker.stream(AFTER).restarted == 0, "not before its time"
    engine.refused.clear()
    put_forward(events, "prism_staging_objects", "retry_time")
    report = worker.stream(AFTER)
    assert (report.restarted, report.rows_out) == (1, 3)
    events.catalog(AFTER)
    assert events.ids() == sorted(row["id"] for row in [*rows, *others])


def test_an_object_that_stays_refused_is_tried_ever_more_seldom_and_in_the_end_no_more(events: World) -> None:
    archived = events.drop(some_rows(1, utc(NOON)))
    events.drop(some_rows(1, utc(NOON)))
    engine = RefusingEngine(events.context.engine, {archived})
    worker = another_worker(events, engine)
    until_given_up(events, worker)
    pauses = []
    for _ in range(50):
        with events.context.database.begin() as connection:
            pause = connection.exec_driver_sql(
                "SELECT round(extract(epoch FROM retry_time - clock_timestamp()) / 3600) FROM prism_staging_objects "
                "WHERE state = 'failed'"
            ).scalar_one()
        if pause is None:
            break
        pauses.append(int(pause))
        put_forward(events, "prism_staging_objects", "retry_time")
        worker.stream(NOON)
    assert pauses[:6] == [1, 2, 4, 8, 16, 24]
    assert 24 * 10 < sum(pauses) < 24 * 20, "hours: longer than any archive takes, and not for ever"
    assert objects(events)[0][0] == "failed"


def test_an_object_alone_is_told_from_its_bucket_by_one_that_was_read_before(events: World) -> None:
    """Quiet tables have batches of one all the time."""
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    archived = events.drop(some_rows(1, utc(NOON)))
    worker = another_worker(events, RefusingEngine(events.context.engine, {archived}))
    worker.stream(NOON)
    assert objects(events)[1] == ("pending", 1, 0)


def test_objects_of_a_bucket_that_serves_nothing_are_charged_with_nothing(events: World) -> None:
    keys = {events.drop(some_rows(1, utc(NOON))) for _ in range(3)}
    engine = RefusingEngine(events.context.engine, set(keys))
    worker = another_worker(events, engine)
    for _ in range(events.settings.max_refusals + 2):
        worker.stream(NOON)
        rest_is_over(events)
    assert objects(events) == [("pending", 0, 0)] * 3
    engine.refused.clear()
    assert worker.stream(NOON).rows_out == 3


class _Archive(BaseHTTPRequestHandler):
    """Answers as S3 does for an object in Glacier."""

    def do_GET(self) -> None:
        body = b"<Error><Code>InvalidObjectState</Code><StorageClass>GLACIER</StorageClass></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Says nothing."""


def test_a_refusal_of_s3_is_one_to_read_the_source(events: World) -> None:
    """Only a refused read of the source can be the object's own fault. A refused write to the lake cannot."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Archive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        from prism_assets.kernels.convert import convert_object

        events.drop(some_rows(1, utc(NOON)))
        events.discover(NOON)
        plan = start_batch(events.context, None)
        assert plan is not None
        stores = Stores(StoreConfig(endpoint=f"http://127.0.0.1:{server.server_port}", retry_seconds=1))
        table = next(iter(plan.definitions.values()))
        result = convert_object(plan.tasks[0], table, stores, Lake("lake", "", stores.config))
    finally:
        server.shutdown()
        server.server_close()
    assert result.failure is not None
    assert (result.failure.transient, result.failure.at_source) == (True, True)


# Dying workers and sick engines


@dataclass
class DyingProcess:
    """A worker whose process is killed over some objects: without a result or an error, and without a release."""

    world: World
    killers: set[str]
    sizes: list[int] = dataclasses.field(default_factory=list)

    def run(self) -> None:
        """Streams until nothing is pending or the process is killed. Then its lease expires."""
        rest_is_over(self.world)
        context = self.world.context
        while (plan := start_batch(context, None)) is not None:
            if plan.holds_suspects:
                probe_engine(context, plan)
            if self.killers.intersection(task.key for task in plan.tasks):
                self.sizes.append(len(plan.tasks))
                expire_leases(self.world)
                return
            results = list(context.engine.run(plan.tasks, plan.definitions))
            commit_batch(context, plan, results, utc(NOON))


def test_an_object_that_kills_its_worker_ends_up_alone_and_failed_and_the_others_are_done(events: World) -> None:
    """Out of memory, in the process of the worker itself."""
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(8)]
    events.discover(NOON)
    worker = DyingProcess(events, {keys[5]})
    failed: tuple[str, ...] = ()
    for _ in range(12):
        worker.run()
        failed += reclaim_expired(events.context).errors
    assert worker.sizes == [8, 4, 2, 1, 1, 1, 1]
    assert [row[0] for row in objects(events)] == ["done"] * 5 + ["failed"] + ["done"] * 2
    assert len(failed) == 1
    assert failed[0].startswith(f"gave up s3://staging/{keys[5]}: the worker of batch ")
    assert failed[0].endswith(" died or stood still over it alone; it is tried again by itself")


def test_workers_that_die_for_other_reasons_give_up_no_object(events: World) -> None:
    """A host restarts ten times. The engine was never seen working."""
    events.drop(some_rows(1, utc(NOON)))
    events.discover(NOON)
    for _ in range(10):
        rest_is_over(events)
        assert start_batch(events.context, None) is not None
        expire_leases(events)
        assert run_stream(events.context, now=utc(NOON), max_batches=0).errors == ()
    rest_is_over(events)
    assert events.stream(NOON).rows_out == 1


def test_new_objects_do_not_wait_for_those_that_a_batch_died_with(events: World) -> None:
    killer = events.drop(some_rows(1, utc(NOON)))
    events.discover(NOON)
    DyingProcess(events, {killer}).run()
    fresh = events.drop(some_rows(1, utc(NOON)))
    events.discover(NOON)
    assert reclaim_expired(events.context).reclaimed == 1
    plan = start_batch(events.context, None)
    assert plan is not None
    assert [task.key for task in plan.tasks] == [fresh]


def test_an_engine_that_dies_of_anything_blames_no_object_that_is_alone(events: World) -> None:
    events.drop(some_rows(1, utc(NOON)))
    engine = PoisonedEngine(events.context.engine, poison="", sick=True)
    for _ in range(events.settings.max_attempts + 2):
        with pytest.raises(EngineUnavailable):
            another_worker(events, engine).stream(NOON)
    assert objects(events) == [("pending", 0, 0)]
    assert events.stream(NOON).rows_out == 1


def test_an_object_whose_result_the_engine_leaves_out_is_charged_and_the_others_are_done(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(3)]
    worker = another_worker(events, ForgetfulEngine(events.context.engine, keys[1]))
    assert worker.stream(NOON).objects == 2
    assert objects(events) == [("done", 0, 0), ("pending", 1, 0), ("done", 0, 0)]
    assert "the engine ended without a result for it" in until_given_up(events, worker)[0]


def test_an_object_that_takes_all_memory_of_this_process_fails_alone(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(4)]
    engine = events.context.engine
    object.__setattr__(engine, "_stores", StoresWithoutMemory(events.settings.store, keys[2]))
    assert events.stream(NOON).objects == 3
    assert "not enough memory" in until_given_up(events, events)[0]


def test_a_result_that_postgresql_refuses_fails_alone_in_the_same_run(events: World) -> None:
    """Otherwise one unbalanced ledger would roll back its whole batch again and again."""
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(4)]

    @dataclass
    class Unbalanced(Through):
        def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
            for task, result in zip(tasks, self.inner.run(tasks, definitions), strict=True):
                yield dataclasses.replace(result, lines_in=9) if task.key == keys[3] else result

    worker = another_worker(events, Unbalanced(events.context.engine))
    assert worker.stream(NOON).objects == 3
    assert "inconsistent" in until_given_up(events, worker)[0]
    assert [row[0] for row in objects(events)] == ["done", "done", "done", "failed"]


def test_an_error_of_our_own_code_is_raised_and_divides_the_batch(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(2)]

    @dataclass
    class Wrong(Through):
        def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
            for task, result in zip(tasks, self.inner.run(tasks, definitions), strict=True):
                if task.key == keys[0]:
                    raise ZeroDivisionError
                yield result

    worker = another_worker(events, Wrong(events.context.engine))
    done = 0
    for _ in range(12):
        rest_is_over(events)
        try:
            done += worker.stream(NOON).objects
        except ZeroDivisionError:
            continue
    assert [row[0] for row in objects(events)] == ["failed", "done"]


# Overwritten objects


def write_again(world: World, key: str, rows: Sequence[Any]) -> None:
    """The producer puts another object under the same key."""
    (world.root / "buckets" / "staging" / key).write_bytes(zipped(as_lines(rows)) + b"")


def test_an_object_written_again_between_claim_and_reading_is_taken_up_as_it_is_now(events: World) -> None:
    key = events.drop(some_rows(5, utc(NOON)))
    events.discover(NOON)
    plan = start_batch(events.context, None)
    assert plan is not None
    newer = some_rows(9, utc(NOON))
    write_again(events, key, newer)
    results = list(events.context.engine.run(plan.tasks, plan.definitions))
    assert commit_batch(events.context, plan, results, utc(NOON)).retried == 1
    assert objects(events) == [("pending", 0, 1)], "what is there now has all its attempts"
    rest_is_over(events)
    assert events.stream(NOON).rows_out == 9
    events.catalog(NOON)
    assert events.ids() == [row["id"] for row in newer]


def test_an_object_that_is_written_again_faster_than_it_is_read_is_given_up_and_told(events: World) -> None:
    events.drop(some_rows(1, utc(NOON)))

    @dataclass
    class TooLate(Through):
        def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
            version = SourceVersion(etag="x", content_length=1, last_modified=utc(NOON))
            for task in tasks:
                yield ConvertResult(staging_object_id=task.staging_object_id, changed=version)

    failed = until_given_up(events, another_worker(events, TooLate(events.context.engine)))
    assert failed[0].endswith("it was written again before it was read; it is tried again by itself")


def test_an_object_that_was_given_up_and_comes_again_is_converted(events: World) -> None:
    """The producer uploads a corrected object under the same key."""
    key = events.drop(some_rows(1, utc(NOON)))
    worker = another_worker(events, FailingEngine(events.context.engine, times=5, transient=False))
    until_given_up(events, worker)
    events.stream(NOON)
    assert objects(events)[0][0] == "failed", "the same one is not tried again"
    write_again(events, key, some_rows(4, utc(NOON)))
    assert events.stream(NOON).rows_out == 4
    events.catalog(NOON)
    assert len(events.ids()) == 4


def test_rows_of_an_object_that_is_restarted_are_there_once_whatever_comes_late(events: World) -> None:
    """A task of the first start uploads long after the second has committed. A repair removes its upload."""
    rows = some_rows(3, utc(NOON))
    key = events.drop(rows)
    worker = another_worker(events, FailingEngine(events.context.engine, times=5, transient=False))
    until_given_up(events, worker)
    old = start_of(events, key, generation=0)
    retry_object(events.context, f"s3://staging/{key}")
    assert events.stream(NOON).rows_out == 3
    events.catalog(NOON)
    assert events.ids() == [row["id"] for row in rows]
    list(events.context.engine.run([old], definitions_of(events)))
    assert len(events.ids()) == 6, "readers list the folder: this is what the repair is for"
    assert run_repair(events.context, dry_run=True).strays == 1
    assert run_repair(events.context).strays == 1
    assert events.ids() == [row["id"] for row in rows]
    assert run_repair(events.context).strays == 0


def test_a_repair_leaves_alone_what_a_batch_may_still_commit(events: World) -> None:
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    events.drop(some_rows(2, utc(NOON)))
    events.discover(NOON)
    plan = start_batch(events.context, None)
    assert plan is not None
    results = list(events.context.engine.run(plan.tasks, plan.definitions))
    assert run_repair(events.context).strays == 0
    commit_batch(events.context, plan, results, utc(NOON))
    events.catalog(NOON)
    assert len(events.ids()) == 3


def start_of(world: World, key: str, *, generation: int) -> ConvertTask:
    """Returns the task of an earlier start of an object."""
    table = world.context.choose_tables(None)[0]
    info = world.context.stores.head("staging", key)
    return ConvertTask(
        staging_object_id=1,
        bucket="staging",
        key=key,
        etag=info.etag,
        content_length=info.content_length,
        received=utc(NOON),
        stream_name="events",
        delayed_dates=frozenset(),
        table_id=table.table_id,
        definition_version=table.version,
        generation=generation,
    )


def definitions_of(world: World) -> Definitions:
    return {(table.table_id, table.version): table for table in world.context.choose_tables(None)}


# Decisions of people


def test_a_person_may_give_up_an_object_that_rests_and_take_that_back(events: World) -> None:
    rows = some_rows(2, utc(NOON))
    key = events.drop(rows)
    worker = another_worker(events, FailingEngine(events.context.engine, times=1))
    worker.stream(NOON)
    assert len(live_keys(events)) == 1
    give_up_object(events.context, f"s3://staging/{key}")
    assert objects(events) == [("failed", 0, 0)]
    events.stream(NOON)
    assert live_keys(events) == [], "its uploads are removed"
    retry_object(events.context, key)
    assert objects(events) == [("pending", 0, 1)]
    assert events.stream(NOON).rows_out == 2
    events.catalog(NOON)
    assert events.ids() == [row["id"] for row in rows]


def test_an_object_that_a_worker_has_or_that_is_converted_cannot_be_given_up(events: World) -> None:
    key = events.drop(some_rows(1, utc(NOON)))
    events.discover(NOON)
    plan = start_batch(events.context, None)
    with pytest.raises(WrongUse, match="cannot be given up"):
        give_up_object(events.context, key)
    assert plan is not None
    results = list(events.context.engine.run(plan.tasks, plan.definitions))
    commit_batch(events.context, plan, results, utc(NOON))
    with pytest.raises(WrongUse, match="cannot be given up"):
        give_up_object(events.context, key)
    with pytest.raises(WrongUse, match="was not given up"):
        retry_object(events.context, key)


def test_an_unknown_key_is_named(events: World) -> None:
    with pytest.raises(WrongUse, match="there is no staging object s3://staging/none"):
        give_up_object(events.context, "s3://staging/none")


def test_whatever_ends_a_batch_leaves_nothing_claimed(events: World) -> None:
    events.drop(some_rows(1, utc(NOON)))

    @dataclass
    class Ending(Through):
        error: BaseException

        def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
            raise self.error

    for error in (StoreUnavailable("away"), KeyboardInterrupt()):
        with pytest.raises((PrismError, KeyboardInterrupt)):
            another_worker(events, Ending(events.context.engine, error)).stream(NOON)
        assert objects(events) == [("pending", 0, 0)]
