"""Repair outside the live prefix of an open day: objects get new keys, as by every rewrite, and readers follow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.files.data_file import SmallObject
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import small_objects
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.commit import commit_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.crash.processes import run
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass
from prism_assets_tests.stages.engines import PausingEngine, VanishingEngine, another_worker
from prism_assets_tests.stages.test_repair import AFTER, DAY, NOON, counts, encoded_otherwise, everything, some_objects
from prism_assets_tests.stages.test_rewrite_races import LateEngine
from prism_assets_tests.world import World


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        made.apply(a_table())
        yield made


def closed(world: World, count: int = 3) -> list[int]:
    """A day of some objects that is closed and published; the ids of its rows."""
    ids = some_objects(world, count)
    world.catalog(AFTER)
    return ids


def recorded(world: World) -> list[SmallObject]:
    (table,) = world.context.choose_tables(["log.events"])
    with world.context.database.begin() as connection:
        return [
            item
            for day in partitions.load_table_partitions(connection, table.table_id)
            for item in small_objects.load_above(connection, world.context.lake.keys(table), day.partition_id, 0)
        ]


def rewrites(world: World) -> list[tuple[str, str]]:
    with world.context.database.begin() as connection:
        statement = "SELECT kind, state FROM prism_rewrites ORDER BY prism_rewrite_id"
        return [(row.kind, row.state) for row in connection.exec_driver_sql(statement)]


def names(files: list[SmallObject]) -> list[str]:
    return [file.key.rpartition("/")[2].removeprefix("prism-").removesuffix(".parquet").lstrip("0") for file in files]


def lose(world: World, *files: SmallObject) -> None:
    world.context.stores.delete("lake", [file.key for file in files])


def test_a_lost_object_of_a_closed_day_comes_back_under_a_new_key(world: World) -> None:
    ids = closed(world)
    before = recorded(world)
    body = world.context.stores.get("lake", before[0].key)
    lose(world, before[0])
    report = run_repair(world.context)
    assert (counts(report), report.errors) == ((3, 1, 0, 1), ())
    assert [item.rewritten for item in report.partitions] == [1]
    after = recorded(world)
    assert names(after) == ["1-r1", "2", "3"]
    assert before[0].key not in everything(world)
    assert world.context.stores.get("lake", after[0].key) == body
    assert [item.object_id for item in after] == [item.object_id for item in before]
    assert after[0].upload_start_time == before[0].upload_start_time
    assert rewrites(world) == [("repair", "done")]
    assert counts(run_repair(world.context, deep=True)) == (3, 0, 0, 0)

    assert [item.kind for item in find_work(world.context, "catalog", now=utc(AFTER))] == ["publish"]
    world.catalog(AFTER)
    assert [item.url for item in world.partition(DAY).objects] == [item.url for item in after]
    assert world.ids() == ids
    assert not world.catalog(AFTER).changed
    assert run_doctor(world.context, deep=True).is_clean


def test_the_damaged_object_stays_for_its_readers_and_goes_after_them(world: World) -> None:
    ids = closed(world)
    (damaged, *_) = recorded(world)
    world.context.stores.put("lake", damaged.key, b"torn")
    assert counts(run_repair(world.context)) == (3, 0, 1, 1)
    world.catalog(AFTER)
    hours_pass(world, 100, of_publications=False)
    assert deleted(world) == {}, "readers may still have the former manifest"
    assert world.context.stores.get("lake", damaged.key) == b"torn"
    hours_pass(world, 100)
    assert deleted(world) == {"superseded": 1, "replaced": 1}
    assert damaged.key not in everything(world)
    assert world.ids() == ids
    assert deleted(world) == {}


def test_what_a_repair_that_died_has_written_goes_with_garbage_collection(world: World) -> None:
    ids = closed(world)
    lost, *_ = recorded(world)
    body = world.context.stores.get("lake", lost.key)
    lose(world, lost)
    status, output = run(world, "repair", PRISM_FAILPOINTS="repair.after_put=kill9")
    assert status == -signal.SIGKILL, output
    world.context.stores.put("lake", lost.key, body)
    assert rewrites(world) == [("repair", "running")]
    hours_pass(world, 100)
    assert deleted(world) == {}, "the repair may still commit it"
    let_repairs_be_forgotten(world)
    assert deleted(world) == {"stray": 1}
    assert rewrites(world) == [("repair", "dropped")]
    assert world.ids() == ids


def test_garbage_collection_leaves_what_a_running_repair_has_written(world: World) -> None:
    ids = closed(world)
    lose(world, recorded(world)[0])

    def collect() -> None:
        hours_pass(world, 100)
        assert deleted(world) == {}

    report = run_repair(another_worker(world, LateEngine(world.context.engine, collect)).context)
    assert (counts(report), report.errors) == ((3, 1, 0, 1), ())
    world.catalog(AFTER)
    assert world.ids() == ids


def test_a_repair_that_garbage_collection_has_dropped_replaces_nothing_and_the_next_one_does(world: World) -> None:
    ids = closed(world)
    before = recorded(world)
    lose(world, before[0])

    def collect() -> None:
        hours_pass(world, 100)
        let_repairs_be_forgotten(world)
        assert deleted(world) == {"stray": 1}

    report = run_repair(another_worker(world, LateEngine(world.context.engine, collect)).context)
    assert counts(report) == (3, 1, 0, 0)
    assert [item.transient for item in report.irreparable] == [True]
    assert "another run has ended this rewrite meanwhile" in report.errors[0]
    assert recorded(world) == before
    assert counts(run_repair(world.context)) == (3, 1, 0, 1)
    world.catalog(AFTER)
    assert world.ids() == ids
    assert run_doctor(world.context, deep=True).is_clean


def let_repairs_be_forgotten(world: World) -> None:
    """As if every repair under way had begun long ago, and its worker had been silent since."""
    with world.context.database.begin() as connection:
        for change in (
            "UPDATE prism_leases SET heartbeat_time = heartbeat_time - interval '1 day' WHERE kind = 'repair'",
            "UPDATE prism_rewrites SET start_time = start_time - interval '100 days' WHERE kind = 'repair'",
        ):
            connection.exec_driver_sql(change)


def test_an_object_keeps_its_key_as_long_as_readers_list_it_and_the_delayed_one_beside_it_does_not(
    world: World,
) -> None:
    """The day is marked, and an object that a worker is at keeps it open."""
    ids = some_objects(world, 2)
    late = [*some_rows(1, utc(NOON)), *some_rows(1, utc(NOON))]
    world.drop(late[:1])
    world.discover(NOON)
    batch = start_batch(world.context, None)
    world.catalog(AFTER)
    world.drop(late[1:])
    world.stream(AFTER)
    before = recorded(world)
    assert [item.delayed for item in before] == [False, False, True]
    bodies = everything(world)
    lose(world, *before)
    assert counts(run_repair(world.context)) == (3, 3, 0, 3)
    assert names(recorded(world)) == ["1", "2", "4-r1"]
    assert {item.key: world.context.stores.get("lake", item.key) for item in before[:2]} == {
        item.key: bodies[item.key] for item in before[:2]
    }
    assert world.ids() == ids
    assert batch is not None
    for result in world.context.engine.run(batch.tasks, batch.definitions):
        commit_batch(world.context, batch, [result], utc(AFTER))
    world.catalog(AFTER)
    assert world.ids() == sorted([*ids, *(row["id"] for row in late)])


def test_rows_of_another_length_are_copied_though_their_staging_object_is_gone(world: World) -> None:
    ids = closed(world)
    (known, *_) = recorded(world)
    body = encoded_otherwise(world.context.stores.get("lake", known.key))
    world.context.stores.put("lake", known.key, body)
    world.context.stores.delete("staging", [item.key for item in world.context.stores.list("staging", "")])
    assert counts(run_repair(world.context)) == (3, 0, 1, 1)
    (copied, *_) = recorded(world)
    assert copied.key != known.key
    assert world.context.stores.get("lake", copied.key) == body
    world.catalog(AFTER)
    assert world.ids() == ids
    assert counts(run_repair(world.context, deep=True)) == (3, 0, 0, 0)


def test_nothing_is_replaced_where_the_staging_object_is_gone(world: World) -> None:
    closed(world)
    before = recorded(world)
    lose(world, before[0])
    (first, *_) = sorted(item.key for item in world.context.stores.list("staging", ""))
    world.context.stores.delete("staging", [first])
    bodies = everything(world)
    report = run_repair(world.context)
    assert counts(report) == (3, 1, 0, 0)
    assert f"its staging object s3://staging/{first} is gone" in report.errors[0]
    assert recorded(world) == before
    assert everything(world) == bodies
    assert rewrites(world) == [("repair", "dropped")]
    assert not world.catalog(AFTER).changed


def test_a_deep_repair_of_sound_objects_leaves_no_rewrite_running(world: World) -> None:
    closed(world)
    before = everything(world)
    assert counts(run_repair(world.context, deep=True)) == (3, 0, 0, 0)
    assert everything(world) == before
    assert rewrites(world) == [("repair", "dropped")]


def test_a_dry_run_begins_no_rewrite(world: World) -> None:
    closed(world)
    lose(world, *recorded(world))
    assert counts(run_repair(world.context, deep=True, dry_run=True)) == (3, 3, 0, 0)
    assert rewrites(world) == []


def test_a_repair_whose_lease_another_one_has_taken_over_replaces_nothing(world: World) -> None:
    ids = closed(world)
    lose(world, recorded(world)[0])

    def meanwhile() -> None:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql("DELETE FROM prism_leases WHERE kind = 'repair'")
        assert counts(run_repair(world.context)) == (3, 1, 0, 1)

    report = run_repair(another_worker(world, PausingEngine(world.context.engine, meanwhile)).context)
    assert [item.transient for item in report.irreparable] == [True]
    assert "another run has taken this work over meanwhile" in report.errors[0]
    assert names(recorded(world)) == ["1-r2", "2", "3"]
    assert rewrites(world) == [("repair", "dropped"), ("repair", "done")]
    world.catalog(AFTER)
    assert world.ids() == ids
    assert counts(run_repair(world.context, deep=True)) == (3, 0, 0, 0)


def test_a_repair_that_an_erasure_overtakes_is_planned_again_and_brings_no_row_back(world: World) -> None:
    ids = closed(world)
    bodies = {item.key: world.context.stores.get("lake", item.key) for item in recorded(world)}
    lose(world, *recorded(world))

    def erase() -> None:
        for key, body in bodies.items():
            world.context.stores.put("lake", key, body)
        assert run_erase(world.context, "log.events", f"id = {ids[0]}", rows=1).errors == ()
        lose(world, *recorded(world)[1:])

    report = run_repair(another_worker(world, PausingEngine(world.context.engine, erase)).context)
    assert (counts(report), report.errors) == ((3, 2, 0, 2), ())
    assert names(recorded(world)) == ["1-r2", "2-r3", "3-r3"]
    assert rewrites(world) == [("repair", "dropped"), ("erase", "done"), ("repair", "done")]
    world.catalog(AFTER)
    assert world.ids() == ids[1:]


def test_a_number_that_a_lost_rewrite_has_used_is_passed_over(world: World) -> None:
    """PostgreSQL was set back, and other rows lie under the keys of the next numbers."""
    ids = closed(world)
    first, second, _ = recorded(world)
    folder = first.key.rpartition("/")[0].replace("/live/", "/delayed/")
    name = first.key.rpartition("/")[2].removesuffix(".parquet")
    body = world.context.stores.get("lake", second.key)
    for number in (1, 2, 7):
        world.context.stores.put("lake", f"{folder}/{name}-r{number}.parquet", body)
    lose(world, first)
    report = run_repair(world.context)
    assert (counts(report), report.errors) == ((3, 1, 0, 1), ())
    assert names(recorded(world)) == ["1-r8", "2", "3"]
    world.catalog(AFTER)
    assert world.ids() == ids


def test_what_was_written_before_the_engine_went_away_is_committed(world: World) -> None:
    closed(world)
    lose(world, *recorded(world))
    report = run_repair(another_worker(world, VanishingEngine(world.context.engine, results=2)).context)
    assert counts(report) == (3, 3, 0, 2)
    assert names(recorded(world)) == ["1-r1", "2-r1", "3"]
    assert counts(run_repair(world.context)) == (3, 1, 0, 1)
    assert names(recorded(world)) == ["1-r1", "2-r1", "3-r2"]
    assert rewrites(world) == [("repair", "done"), ("repair", "done")]
