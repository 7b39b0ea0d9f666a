"""Tables without any claimed object: their files may be corrected, or the table dropped."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, text

from prism_assets import failpoints
from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.failpoints import InjectedFault
from prism_assets.metadata import locks
from prism_assets.stages.drop.run import continue_drops, run_drop
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.conftest import lake as lake
from prism_assets_tests.ducklake.conftest import new_lake as new_lake
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.ducklake.sessions import duckdb_session as duckdb_session
from prism_assets_tests.ducklake.sessions import new_session as new_session
from prism_assets_tests.requests import Requests, a_join_table, some_changes
from prism_assets_tests.stages.catalogs import calls_are_over
from prism_assets_tests.stages.seen_columns import look, publish
from prism_assets_tests.stages.test_apply import columns, rows
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
EVENTS = "log.events"
WRONG = ["{name: color, type: bigint}", "{name: size, type: string, length: 2000}"]
RIGHT = ["{name: color, type: string, length: 20, required: true}", "{name: size, type: bigint}"]


def events(columns: list[str]) -> str:
    return a_table(columns=columns, merge="{interval: 0}", iceberg="true") + "symlink: true\n"


def an_object(world: World) -> list[dict[str, Any]]:
    made = some_rows(3, utc(NOON), color="red", size=7)
    world.drop(made)
    return made


def claimed_while_it_waits(world: World, act: Callable[[], object]) -> None:
    """Starts the act while a batch is starting.

    The batch holds the shared epoch lock and claims an object before it ends.
    """
    claim = "UPDATE prism_staging_objects SET first_batch_id = 1, definition_version = 1"
    while_it_waits(world, act, lambda connection: connection.exec_driver_sql(claim))


def while_it_waits(world: World, act: Callable[[], object], meanwhile: Callable[[Connection], object]) -> None:
    """Starts the act while a batch is starting, and runs `meanwhile` in the batch's transaction once the act waits for
    it.
    """
    blocked = text(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = :lock AND NOT granted "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with ThreadPoolExecutor(1) as pool, world.context.database.begin() as connection:
        locks.share_epoch(connection)
        acting = pool.submit(act)
        deadline = time.monotonic() + 120
        while not connection.execute(blocked, {"lock": locks.EPOCH}).scalar_one():
            assert time.monotonic() < deadline, "nobody waits for the epoch lock"
            assert not acting.done(), "it did not wait"
            time.sleep(0.005)
        meanwhile(connection)
        connection.commit()
        acting.result()


def test_a_column_of_another_type_is_replaced_for_every_reader(world: World) -> None:
    """All catalogs already show the table with its first columns."""
    world.apply(events(WRONG))
    publish(world, NOON)
    assert world.apply(events(RIGHT)).lines == (
        "replace column color bigint of log.events by color string: no object of the table was ever read",
        "replace column size string of log.events by size bigint: no object of the table was ever read",
    )
    assert columns(world) == [(1, "time"), (2, "id"), (3, "color"), (4, "size"), (5, "color"), (6, "size")]
    publish(world, NOON)
    made = an_object(world)
    world.stream(NOON)
    publish(world, NOON)
    look(world, made, "color", "size")
    assert world.apply().lines == ()


def test_a_column_is_replaced_in_an_open_session_of_ducklake(world: World, lake: LakeOfTest) -> None:
    world.apply(events(WRONG))
    assert lake.query("SELECT color, size FROM lake.log.events") == []
    world.apply(events(RIGHT))
    an_object(world)
    world.stream(NOON)
    assert lake.query("SELECT color, size, count(*) FROM lake.log.events GROUP BY ALL") == [("red", 7, 3)]


def test_a_length_the_partition_and_the_zone_change_as_freely(world: World) -> None:
    at = "{name: at, type: timestamp, required: true}"
    world.apply(a_table(columns=["{name: color, type: string, length: 2000}", at]))
    plan = world.apply(
        a_table(columns=["{name: color, type: string, length: 20}", at], timezone="Asia/Tokyo").replace(
            "column: time", "column: at"
        )
    )
    assert plan.lines[:1] == (
        "shorten column color of log.events from 2000 to 20 bytes: no object of the table was ever read",
    )
    assert set(plan.lines[1:]) >= {
        "divide rows of log.events into days by at: no object of the table was ever read",
        "divide rows of log.events into days of Asia/Tokyo: no object of the table was ever read",
    }
    (row,) = some_rows(1, utc("2026-03-01T01:00"))
    world.drop([row | {"at": "2026-03-01T16:00:00Z", "color": "x" * 30}])
    world.stream("2026-03-01T16:00")
    world.catalog("2026-03-01T16:10")
    assert [str(item.date) for item in world.reader().table(EVENTS).partitions] == ["2026-03-02"]
    assert world.query("SELECT color FROM log.events") == [("x" * 20,)]


def test_the_partition_column_may_get_another_name_and_type(world: World) -> None:
    world.apply(a_table())
    wanted = a_table().replace("name: time, type: timestamp", "name: day, was: time, type: date")
    plan = world.apply(wanted.replace("column: time", "column: day"))
    assert plan.lines[0] == (
        "replace column time timestamp of log.events by day date: no object of the table was ever read"
    )
    world.drop([{"time": "2026-03-01", "id": 1}])
    world.stream(NOON)
    world.catalog(NOON)
    assert world.query("SELECT CAST(day AS varchar), id FROM log.events") == [("2026-03-01", 1)]


def test_objects_that_only_wait_hold_nothing(world: World) -> None:
    world.apply(events(WRONG))
    made = an_object(world)
    world.discover(NOON)
    assert len(world.apply(events(RIGHT)).lines) == 2
    world.stream(NOON)
    publish(world, NOON)
    look(world, made, "color", "size")


def test_one_claimed_object_holds_everything_though_it_gave_no_row(world: World) -> None:
    world.apply(events(WRONG))
    an_object(world)
    world.discover(NOON)
    start_batch(world.context, None)
    with pytest.raises(DefinitionError) as raised:
        world.apply(events(RIGHT))
    assert "color is bigint and cannot become string" in str(raised.value)
    with pytest.raises(WrongUse, match="is not retired"):
        run_drop(world.context, EVENTS, confirm=EVENTS)


def test_a_batch_that_claims_between_the_look_and_the_lock_is_seen(world: World) -> None:
    """The batch holds the shared epoch lock during the first look of `apply`. `apply` waits for it, and looks again."""
    world.apply(events(WRONG))
    an_object(world)
    world.discover(NOON)
    with pytest.raises(DefinitionError, match="color is bigint and cannot become string"):
        claimed_while_it_waits(world, lambda: world.apply(events(RIGHT)))


def test_both_tables_of_a_join_table_follow(world: World) -> None:
    file = a_join_table()
    world.apply(file)
    world.catalog(NOON)
    assert "{name: status, type: bigint" in file
    plan = world.apply(file.replace("{name: status, type: bigint", "{name: status, type: string, length: 20"))
    assert [line for line in plan.lines if line.startswith("replace")] == [
        "replace column status bigint of log.request by status string: no object of the table was ever read",
        "replace column status bigint of log.request_changes by status string: no object of the table was ever read",
    ]
    requests = Requests(world)
    requests.arrive(some_changes(1, 20, NOON, requests=5, hours=1), NOON)
    with pytest.raises(DefinitionError, match="status is string and cannot become bigint"):
        world.apply(file)


def test_a_table_that_was_never_read_is_dropped_at_once_and_its_name_is_free(world: World) -> None:
    world.apply(events(WRONG))
    publish(world, NOON)
    made = an_object(world)
    world.discover(NOON)
    with pytest.raises(WrongUse, match="is still defined in"):
        run_drop(world.context, EVENTS, confirm=EVENTS)
    (world.settings.tables_dir / "events.yaml").unlink()
    report = run_drop(world.context, EVENTS, confirm=EVENTS)
    calls_are_over(world)
    report = continue_drops(world.context) if not report.drops[0].is_over else report
    assert [drop.state for drop in report.drops] == ["dropped"]
    world.apply(events(RIGHT))
    world.stream(NOON)
    publish(world, NOON)
    look(world, made, "color", "size")


def test_a_join_table_that_was_never_read_is_dropped_at_once(world: World) -> None:
    world.apply(a_join_table())
    (world.settings.tables_dir / "request.yaml").unlink()
    run_drop(world.context, "log.request", confirm="log.request")
    calls_are_over(world)
    report = continue_drops(world.context)
    assert report.errors == ()
    assert rows(world, "SELECT count(*) FROM prism_tables") == [(0,)]


def test_a_table_that_is_read_between_the_plan_and_the_drop_stays(world: World) -> None:
    """The plan saw no claim. The drop looks again when no batch is starting."""
    world.apply(events(RIGHT))
    made = [*an_object(world), *an_object(world)]
    world.discover(NOON)
    (world.settings.tables_dir / "events.yaml").unlink()

    def claims(connection: Connection) -> None:
        """Claims an object again registered by a listing, after the drop has forgotten the waiting ones."""
        world.discover(NOON)
        connection.exec_driver_sql(
            "UPDATE prism_staging_objects SET first_batch_id = 1, definition_version = 1 WHERE prism_staging_object_id "
            "= (SELECT min(prism_staging_object_id) FROM prism_staging_objects)"
        )

    with pytest.raises(WrongUse, match=r"log\.events was changed meanwhile: look at it again; nothing was dropped"):
        while_it_waits(world, lambda: run_drop(world.context, EVENTS, confirm=EVENTS), claims)
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids() == [row["id"] for row in made]


def test_batches_do_not_wait_while_a_drop_forgets_what_waited(world: World) -> None:
    """Millions of objects may wait at a wrong prefix: they are gone before the drop keeps batches from starting."""
    world.apply(events(RIGHT))
    an_object(world)
    world.discover(NOON)
    (world.settings.tables_dir / "events.yaml").unlink()
    left: list[int] = []

    def count(connection: Connection) -> None:
        left.append(connection.exec_driver_sql("SELECT count(*) FROM prism_staging_objects").scalar_one())

    while_it_waits(world, lambda: run_drop(world.context, EVENTS, confirm=EVENTS), count)
    assert left == [0]


def test_a_drop_that_died_while_it_forgot_what_waited_leaves_a_table_that_reads_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(events(RIGHT))
    made = an_object(world)
    world.discover(NOON)
    (world.settings.tables_dir / "events.yaml").unlink()
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse("drop.after_forget_waiting=1*raise"))
    with pytest.raises(InjectedFault):
        run_drop(world.context, EVENTS, confirm=EVENTS)
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids() == [row["id"] for row in made]
