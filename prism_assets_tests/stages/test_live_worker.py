"""The live worker: its turns, its share of the tables, and how it loses them."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import pytest

from prism_assets.cli.status_reports import show_status
from prism_assets.domain.erasures.records import ErasureRecord
from prism_assets.domain.errors import CatalogUnavailable
from prism_assets.domain.files.keys import table_folder
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.engine.base import Engine
from prism_assets.metadata import leases
from prism_assets.metadata.leases import LeaseKind
from prism_assets.objectstore.config import ObjectInfo, StoreConfig
from prism_assets.objectstore.erasure_records import put_record
from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.queues.sqs import SqsQueue
from prism_assets.stages.drop.run import run_drop
from prism_assets.stages.live.holdings import Holdings, is_dead_neighbour, live_tables
from prism_assets.stages.live.new_days import NewDays
from prism_assets.stages.live.worker import LiveOptions, LiveWorker
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.catalogs import with_catalog
from prism_assets_tests.stages.engines import PausingEngine, expire_leases
from prism_assets_tests.stages.test_drop import LATER, retire
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


def a_worker(
    world: World,
    *,
    now: str = NOON,
    engine: Engine | None = None,
    tell: Callable[[str], None] = lambda _message: None,
    **more: Any,
) -> LiveWorker:
    """A worker at a fixed time, which waits for its publications."""
    context = replace(world.context, engine=engine or world.context.engine)
    worker = LiveWorker(context, LiveOptions(**more), clock=lambda: utc(now), tell=tell)
    worker._new_days = NewDays(wait_seconds=60.0)
    return worker


def a_turn(worker: LiveWorker) -> bool:
    """Takes a turn, then one of the slow lane, and another turn if the lane converted anything."""
    worked = worker.turn(threading.Event())
    return worker.turn(threading.Event()) if worker.slow_lane.turn() else worked


def tables_of(world: World, *names: str) -> None:
    world.apply(*(a_table(f"log.{name}") for name in names))


def of_worker(world: World, name: str) -> Holdings:
    """The leases of a worker of this name."""
    return Holdings(replace(world.context, worker=name), None)


def held(*workers: Holdings) -> list[list[str]]:
    return [sorted(name.removeprefix("log.") for name in worker.tables.values()) for worker in workers]


def fall_silent(world: World, worker: str) -> None:
    """As if a worker had stood still for longer than its leases."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_leases SET heartbeat_time = heartbeat_time - interval '16 seconds' "
            "WHERE split_part(worker, '/', 1) = %(worker)s",
            {"worker": worker},
        )


def test_one_turn_makes_the_rows_of_a_new_object_readable(world: World) -> None:
    world.apply(a_table())
    rows = some_rows(5, utc(NOON))
    world.drop(rows)
    worker = a_worker(world)
    assert a_turn(worker)
    assert world.ids() == [row["id"] for row in rows]
    assert (worker.vitals.objects, worker.vitals.rows, worker.vitals.tables) == (1, 5, 1)
    assert not a_turn(worker), "nothing is left"


def test_days_with_first_rows_of_several_tables_are_published_in_one_turn(world: World) -> None:
    tables_of(world, "a", "b", "c")
    for name in ("a", "b", "c"):
        world.drop([*some_rows(1, utc(NOON)), *some_rows(1, utc("2026-02-28T12:00"))], stream=name)
    a_turn(a_worker(world))
    assert [len(world.ids(f"log.{name}")) for name in ("a", "b", "c")] == [2, 2, 2]


def test_a_worker_converts_nothing_of_a_table_whose_erasure_a_restore_took_back_meanwhile(world: World) -> None:
    tables_of(world, "a", "b")
    told: list[str] = []
    worker = a_worker(world, tell=told.append, list_seconds=0.0)
    a_turn(worker)
    (table,) = (table for table in world.context.choose_tables(None) if str(table.name) == "log.a")
    record = ErasureRecord(datetime.now(timezone.utc), "f" * 64, table_folder(table.name))
    put_record(world.context.stores, world.context.lake, record, ["id"])
    for name in ("a", "b"):
        world.drop(some_rows(1, utc(NOON)), stream=name)
    a_turn(worker)
    assert (worker.vitals.rows, len(world.ids("log.b"))) == (1, 1)
    assert any("PostgreSQL lacks the erasure of" in line for line in told)


def test_listings_find_the_objects_while_a_queue_does_not_answer(world: World) -> None:
    world.apply(a_table())
    gone = SqsQueue("http://127.0.0.1:1/queue", "http://127.0.0.1:1", "us-east-1")
    context = replace(world.context, queues=(gone,))
    worker = a_worker(replace(world, context=context), list_seconds=0.0)
    rows = [*some_rows(2, utc(NOON)), *some_rows(2, utc(NOON))]
    for of_turn in (rows[:2], rows[2:]):
        world.drop(of_turn)
        a_turn(worker)
    assert world.ids() == [row["id"] for row in rows]


class CountingStores(Stores):
    """Counts listings."""

    def __init__(self, config: StoreConfig) -> None:
        super().__init__(config)
        self.listings = 0

    def list(self, bucket: str, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        self.listings += 1
        return super().list(bucket, prefix, after=after)


def test_a_table_that_waits_for_its_erasure_costs_no_listing_each_turn(world: World) -> None:
    world.apply(a_table())
    (table,) = world.context.choose_tables(None)
    record = ErasureRecord(datetime.now(timezone.utc), "f" * 64, table_folder(table.name))
    put_record(world.context.stores, world.context.lake, record, ["id"])
    world.drop(some_rows(1, utc(NOON)))
    stores = CountingStores(world.settings.store)
    worker = a_worker(replace(world, context=replace(world.context, stores=stores)), list_seconds=3_600.0)
    a_turn(worker)
    worker._upkeep._next = float("inf")
    before = stores.listings
    for _ in range(3):
        assert not a_turn(worker)
    assert (before > 0, stores.listings) == (True, before)


def test_a_worker_closes_and_merges_nothing(world: World) -> None:
    world.apply(a_table(merge="{interval: 0}"))
    for now in (NOON, "2026-03-02T12:00"):
        world.drop(some_rows(2, utc(NOON)))
        worker = a_worker(world, now=now)
        a_turn(worker)
        worker._holdings.release()
    status = world.status("2026-03-01", "2026-03-02T12:00")
    assert (status.state, status.unmerged_objects) == ("live", 2)


def test_a_day_whose_table_another_run_publishes_is_tried_again(world: World) -> None:
    world.apply(a_table())
    world.catalog(NOON)
    rows = some_rows(2, utc(NOON))
    world.drop(rows)
    (table,) = world.context.choose_tables(None)
    with world.context.database.begin() as connection:
        (lease,) = leases.take(connection, LeaseKind.CATALOG, [table.table_id], "another", 60)
    worker = a_worker(world)
    a_turn(worker)
    assert world.ids() == []
    with world.context.database.begin() as connection:
        leases.release(connection, [lease])
    worker._new_days._next_try.clear()
    a_turn(worker)
    assert world.ids() == [row["id"] for row in rows]


def test_workers_share_the_tables_and_a_worker_more_gets_its_part(world: World) -> None:
    tables_of(world, "a", "b", "c", "d", "e")
    first, second = of_worker(world, "first"), of_worker(world, "second")
    first.beat()
    assert held(first) == [["a", "b", "c", "d", "e"]]
    second.beat()
    first.beat()
    second.beat()
    assert held(first, second) == [["a", "b", "c"], ["d", "e"]]
    second.release()
    first.beat()
    assert held(first, second) == [["a", "b", "c", "d", "e"], []]


def test_tables_of_a_dead_worker_go_to_the_others(world: World) -> None:
    tables_of(world, "a", "b")
    dead, living = of_worker(world, "dead"), of_worker(world, "living")
    dead.beat()
    living.beat()
    assert held(living) == [[]]
    fall_silent(world, "dead")
    living.beat()
    assert held(living) == [["a", "b"]]
    dead.beat()
    assert held(dead) == [[]], "a worker that stood still finds its tables gone"


def test_tables_that_only_some_workers_want_have_a_worker(world: World) -> None:
    tables_of(world, "a", "b", "c", "d", "e")
    of_one = Holdings(replace(world.context, worker="of one"), ["log.a"])
    of_all = of_worker(world, "of all")
    for worker in (of_all, of_one, of_all, of_one):
        worker.beat()
    assert held(of_one, of_all) == [[], ["a", "b", "c", "d", "e"]]
    of_all.release()
    for worker in (of_one, of_all):
        worker.beat()
    assert held(of_one, of_all) == [["a"], ["b", "c", "d", "e"]]


def test_workers_of_different_tables_hold_all_of_them(world: World) -> None:
    tables_of(world, "a", "b", "c", "d")
    first = Holdings(replace(world.context, worker="first"), ["log.a", "log.b"])
    second = Holdings(replace(world.context, worker="second"), ["log.c", "log.d"])
    first.beat()
    second.beat()
    assert held(first, second) == [["a", "b"], ["c", "d"]]


def test_a_drop_of_one_wanted_table_leaves_the_others_with_their_worker(world: World) -> None:
    tables_of(world, "a", "b")
    worker = Holdings(world.context, ["log.a", "log.b"])
    worker.beat()
    retire(world, "b")
    run_drop(world.context, "log.b", confirm="log.b", now=LATER)
    worker.beat()
    assert held(worker) == [["a"]]


def test_a_worker_of_named_tables_leaves_the_others_to_the_next_worker(world: World) -> None:
    tables_of(world, "a", "b")
    worker = Holdings(world.context, ["log.a"])
    worker.beat()
    other = of_worker(world, "other")
    other.beat()
    assert held(worker, other) == [["a"], ["b"]]


@dataclass
class _Hanging:
    """Waits until the lease of a table is a second old. A lease that a thread renews never is."""

    world: World
    ages: list[float] = field(default_factory=list)

    def __call__(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with self.world.context.database.begin() as connection:
                (holder,) = leases.load_all_holders(connection, LeaseKind.LIVE).values()
            if holder.silent_seconds > 1:
                self.ages.append(holder.silent_seconds)
                return
            time.sleep(0.02)


def test_a_loop_that_hangs_loses_its_tables(world: World) -> None:
    """With a lease of half a second a thread would renew it every sixth of a second."""
    world.apply(a_table())
    world.drop(some_rows(2, utc(NOON)))
    hanging = _Hanging(world)
    worker = a_worker(world, engine=PausingEngine(world.context.engine, hanging))
    worker._holdings = Holdings(world.context, None, seconds=0.5)
    a_turn(worker)
    assert hanging.ages, "something renews the lease while the loop hangs"
    assert world.ids() != [], "the batch has a lease of its own"


def test_the_schema_of_later_code_ends_a_worker_with_one_sentence(world: World) -> None:
    world.apply(a_table())
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0999'")
    told: list[str] = []
    try:
        LiveWorker(world.context, LiveOptions(), clock=lambda: utc(NOON), tell=told.append).run(threading.Event())
    finally:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    assert len(told) == 1
    assert "version 999, which this code does not know" in told[0]


def test_a_failed_turn_is_told_once_and_ends_nothing(world: World) -> None:
    world.apply(a_table())
    rows = some_rows(2, utc(NOON))
    world.drop(rows)
    stopping, told, turns = threading.Event(), list[str](), itertools.count(1)

    def clock() -> datetime:
        """A clock that fails in the first two turns, and ends the worker once the rows are there."""
        if next(turns) <= 2:
            raise CatalogUnavailable("the clock is away")
        if worker.vitals.objects:
            stopping.set()
        return utc(NOON)

    worker = LiveWorker(world.context, LiveOptions(), clock=clock, tell=told.append)
    worker.run(stopping)
    assert told == ["holds 1 table: log.events", "the clock is away"]
    assert (worker.vitals.failed_turns, world.ids()) == (2, [row["id"] for row in rows])


def test_objects_of_a_dead_batch_are_converted_by_the_next_turn(world: World) -> None:
    world.apply(a_table())
    rows = some_rows(3, utc(NOON))
    world.drop(rows)
    world.discover(NOON)
    assert start_batch(world.context, None) is not None
    expire_leases(world)
    a_turn(a_worker(world))
    assert world.ids() == [row["id"] for row in rows]
    with world.context.database.begin() as connection:
        assert len(live_tables(connection)) == 1


def test_status_names_the_worker_of_a_table(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    tables_of(world, "a", "b")
    of_worker(world, "vm:1").beat()
    show_status(read_status(world.context, now=utc(NOON)), as_json=False)
    assert re.search(r"live worker vm:1/\w{6}: 2 tables, log\.a, log\.b", capsys.readouterr().out)


def test_a_worker_that_starts_again_takes_the_tables_of_its_dead_predecessor_at_once(world: World) -> None:
    tables_of(world, "a", "b")
    host = world.context.worker.rpartition(":")[0]
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    of_worker(world, f"{host}:{ended.pid}").beat()
    again = of_worker(world, f"{host}:{os.getpid()}")
    again.beat()
    assert held(again) == [["a", "b"]]


def test_only_a_process_of_the_same_host_is_known_to_be_dead() -> None:
    own, parent = f"vm:{os.getpid()}", f"vm:{os.getppid()}"
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert is_dead_neighbour(f"vm:{ended.pid}", own)
    assert is_dead_neighbour(own, own), "a container gives each of its workers the same number"
    assert not is_dead_neighbour(parent, own)
    assert not is_dead_neighbour(f"other:{ended.pid}", own)


@dataclass
class _FailingCatalog:
    """Glue that does not answer."""

    inner: GlueCatalog
    asked: set[str] = field(default_factory=set)

    def differs(self, table: TableDefinition, location: str) -> bool:
        self.asked.add(str(table.name))
        raise CatalogUnavailable("Glue does not answer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_catalog_that_does_not_answer_holds_a_turn_for_eight_tables_only(world: World) -> None:
    names = [f"t{n}" for n in range(10)]
    tables_of(world, *names)
    for name in names:
        world.drop(some_rows(1, utc(NOON)), stream=name)
    failing = _FailingCatalog(world.glue)
    worker = a_worker(with_catalog(world, failing))
    a_turn(worker)
    assert (worker.vitals.rows, len(failing.asked)) == (10, 8)
    a_turn(worker)
    assert len(failing.asked) == 8, "all tables wait after a call in which all failed"


@dataclass
class _HangingCatalog:
    """Glue that does not answer before a time that a test chooses."""

    inner: GlueCatalog
    answers: threading.Event = field(default_factory=threading.Event)

    def differs(self, table: TableDefinition, location: str) -> bool:
        assert self.answers.wait(60)
        return self.inner.differs(table, location)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_hanging_catalog_holds_no_turn(world: World) -> None:
    world.apply(a_table())
    rows = [*some_rows(2, utc(NOON)), *some_rows(2, utc(NOON))]
    hanging = _HangingCatalog(world.glue)
    worker = a_worker(with_catalog(world, hanging), list_seconds=0.0)
    worker._new_days = NewDays(wait_seconds=0.0)
    for of_turn in (rows[:2], rows[2:]):
        world.drop(of_turn)
        a_turn(worker)
    assert worker.vitals.rows == 4
    hanging.answers.set()
    worker._new_days._pool.shutdown()
    assert world.ids() == [row["id"] for row in rows]


def test_days_that_a_dead_worker_left_unpublished_are_shown_by_the_next_one(world: World) -> None:
    world.apply(a_table())
    rows = some_rows(2, utc(NOON))
    world.drop(rows)
    world.stream(NOON)
    a_turn(a_worker(world))
    assert world.ids() == [row["id"] for row in rows]


def test_workers_of_containers_with_one_name_leave_no_table_without_a_worker(world: World) -> None:
    """At its start each takes the leases of the others for those of its dead predecessor."""
    tables_of(world, "a", "b", "c", "d", "e")
    one, two, three = (Holdings(replace(world.context, worker="another:1"), None) for _ in range(3))
    for worker in (one, two, three) * 4:
        worker.beat()
    assert sorted(map(len, held(one, two, three))) == [1, 2, 2]
