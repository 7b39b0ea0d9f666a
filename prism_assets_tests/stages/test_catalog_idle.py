"""Tables without work: a catalog run leaves them out, in as many statements and calls for many as for a few."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from prism_assets.metadata import leases
from prism_assets.metadata.days import retention
from prism_assets.metadata.leases import LeaseKind
from prism_assets.publishers.glue import GluePublisher
from prism_assets.stages.catalog.idle import look_first
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.publishers.recorder import Recorder
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.world import World

NOON, LATER, NIGHT = "2026-03-01T12:00", "2026-03-01T13:00", "2026-03-02T01:00"


def tables_at_rest(world: World, count: int) -> None:
    """Applies tables whose days are shown."""
    names = [f"log.t{number}" for number in range(count)]
    world.apply(*(a_table(name) for name in names))
    for name in names:
        world.drop(some_rows(2, utc(NOON)), stream=name.removeprefix("log."))
    world.stream(NOON)
    world.catalog(NOON)


def idle(world: World, now: str = LATER) -> list[str]:
    tables = world.context.choose_with_dropped(None)
    found = look_first(world.context, tables, utc(now)).idle
    return sorted(str(table.name) for table in tables if table.table_id in found)


def recorded(world: World) -> Recorder:
    """Notes the calls of Glue from now on."""
    publisher = world.context.publisher
    assert isinstance(publisher, GluePublisher)
    recorder: Any = Recorder(publisher.catalog._client)
    publisher.catalog._made = recorder
    return recorder  # type: ignore[no-any-return]


def cost(world: World) -> tuple[int, list[str]]:
    """The statements and the calls of one run without work."""
    glue = recorded(world)
    with counted_statements() as statements:
        assert not world.catalog(LATER).changed
    return len([one for one in statements if not one.startswith("BEGIN")]), [*glue.calls]


def test_a_run_without_work_asks_as_much_for_thirty_tables_as_for_twelve(world: World) -> None:
    tables_at_rest(world, 12)
    of_twelve = cost(world)
    tables_at_rest(world, 30)
    assert len(idle(world)) == 30
    assert cost(world) == of_twelve
    assert of_twelve == (10, ["get_tables"])


def test_two_tables_of_a_database_are_compared_by_a_list(world: World) -> None:
    tables_at_rest(world, 2)
    assert cost(world)[1] == ["get_tables"]


def test_the_only_table_of_a_database_is_asked_for_by_name(world: World) -> None:
    tables_at_rest(world, 1)
    assert cost(world)[1] == ["get_table"]


def test_tables_beyond_the_listed_ones_of_a_large_database_are_asked_for_by_name(world: World) -> None:
    tables_at_rest(world, 10)
    glue = recorded(world)
    inner = glue._inner.get_tables

    def first_page(**call: Any) -> Any:
        page = inner(**call)
        return {"TableList": page["TableList"][:7], "NextToken": "more of others"}

    glue.instead["get_tables"] = first_page
    assert not world.catalog(LATER).changed
    assert glue.calls == ["get_tables"] + ["get_table"] * 3


def test_a_table_that_somebody_changed_or_removed_in_glue_is_put_right(world: World) -> None:
    tables_at_rest(world, 12)
    glue = recorded(world)
    (table, *_) = world.context.choose_tables(["log.t3"])
    database = world.context.publisher.catalog.database_name(table)  # type: ignore[attr-defined]
    glue.delete_table(DatabaseName=database, Name="t3")
    assert "log.t3" not in idle(world)
    report = world.catalog(LATER)
    assert [item.table for item in report.tables if item.changed] == ["log.t3"]
    assert len(world.ids("log.t3")) == 2
    assert "log.t3" in idle(world)


def test_a_table_with_any_work_is_not_idle(world: World) -> None:
    tables_at_rest(world, 3)
    every = ["log.t0", "log.t1", "log.t2"]
    assert idle(world) == every
    assert idle(world, NIGHT) == [], "days end"
    world.apply(a_table("log.t1", columns=["{name: more, type: string}"]))
    assert idle(world) == ["log.t0", "log.t2"], "a definition is not shown yet"
    world.drop(some_rows(1, utc("2026-02-27T12:00")), stream="t2")
    world.stream(NOON)
    assert idle(world) == ["log.t0"], "a day waits for its first publication"
    (table,) = world.context.choose_tables(["log.t0"])
    with world.context.database.begin() as connection:
        leases.take(connection, LeaseKind.CATALOG, [table.table_id], "another", 60)
    assert idle(world) == [], "another run is at work"


@pytest.mark.parametrize(
    "doubt",
    [
        "UPDATE prism_table_publications SET compared_time = '2020-01-01'",
        "INSERT INTO prism_publication_intents "
        "(prism_table_id, publisher, lease_token, worker, start_time, expire_time) SELECT prism_table_id, 'glue', "
        "gen_random_uuid(), 'dead', clock_timestamp(), clock_timestamp() FROM prism_tables",
        "DELETE FROM prism_table_publications",
    ],
)
def test_a_table_in_doubt_is_not_idle(world: World, doubt: str) -> None:
    tables_at_rest(world, 2)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(doubt)
    assert idle(world) == []


def test_closed_days_that_wait_for_their_merge_are_reported_by_a_run_that_leaves_their_tables_out(
    world: World,
) -> None:
    tables_at_rest(world, 2)
    world.catalog(NIGHT)
    assert idle(world, NIGHT) == ["log.t0", "log.t1"]
    first, second = world.catalog_and_idle(NIGHT).tables
    assert [item.reason for item in first.waiting] == ["is not switched: it was never merged"]
    world.merge(NIGHT)
    assert idle(world, NIGHT) == [], "both can be switched"
    assert [len(item.switched) for item in world.catalog(NIGHT).tables] == [1, 1]
    assert second.waiting == first.waiting


def test_live_objects_that_a_merge_left_are_counted_by_a_run_that_leaves_their_table_out(world: World) -> None:
    world.apply(a_table(merge="{interval: 0, target_bytes: 100}"))
    for now in (NOON, LATER):
        world.drop(some_rows(3, utc(NOON)))
        world.stream(now)
        if now == NOON:
            world.merge(NOON)
    world.catalog(NIGHT)
    (report,) = world.catalog_and_idle(NIGHT).tables
    assert [item.reason for item in report.waiting] == ["is not switched: 1 live object is not merged yet"]
    assert idle(world, NIGHT) == ["log.events"]


def test_a_table_without_candidates_moves_the_mark_of_its_retention_with_the_first_run_of_a_day(world: World) -> None:
    world.apply(a_table() + "retention_days: 3\n")
    world.catalog(NOON)
    assert idle(world) == ["log.events"]
    assert idle(world, NIGHT) == []
    world.catalog(NIGHT)
    (table,) = world.context.choose_tables(None)
    with world.context.database.begin() as connection:
        mark = retention.load_mark(connection, table.table_id)
    assert mark is not None
    assert mark.first_day == date(2026, 2, 27)
    assert idle(world, NIGHT) == ["log.events"]


def test_tables_of_a_catalog_that_does_not_answer_are_not_idle(world: World) -> None:
    tables_at_rest(world, 12)
    glue = recorded(world)

    def silent(**_call: Any) -> Any:
        raise ReadTimeoutError(endpoint_url="https://glue")

    glue.instead["get_tables"] = silent
    assert idle(world) == []
