"""`prism iceberg` for people: output as words and as JSON, and exit status."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.command.test_errors import fails, in_one_line

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"


@pytest.fixture
def day(prism: Prism) -> Prism:
    """A table to be published as Iceberg, with two small objects of an open day."""
    prism.world.apply(a_table(iceberg="true"), a_table("log.clicks"))
    for _ in range(2):
        prism.world.drop(some_rows(3, utc(NOON)))
    prism.world.stream(NOON)
    return prism


def test_a_table_in_words_from_its_plan_to_its_history(day: Prism) -> None:
    assert day.ok("iceberg", "plan", "--now", NOON).out == (
        f"log.events: create the table\nlog.events {DAY}: add 2 files of 6 rows\n"
    )
    published = day.ok("iceberg", "publish", "--now", NOON).out.splitlines()
    assert published[0].endswith("_iceberg.events") or "log_iceberg.events" in published[0]
    assert "(append): 2 files of 6 rows in, 0 of 0 out, 1 day" in published[1]
    assert day.ok("iceberg", "plan", "--now", NOON).out == "nothing to do\n"
    assert day.ok("iceberg", "publish", "--now", NOON).out == (
        "the Iceberg tables are as they should be; nothing to do\n"
    )
    assert "6" in day.ok("query", "--iceberg", "SELECT count(*) FROM log.events").out
    status = day.ok("iceberg", "status").out
    assert "log.events active: snapshot " in status
    assert "1 retained, 0 s behind, health 100" in status
    assert "committed append" in day.ok("iceberg", "history", "log.events").out
    assert "nothing to do" in day.ok("iceberg", "optimize", "--dry-run", "--now", NOON).out


def test_manifests_of_a_closed_day_are_joined_by_optimize(day: Prism) -> None:
    day.ok("iceberg", "publish", "--now", NOON)
    day.world.drop(some_rows(1, utc(NOON)))
    day.world.stream(NOON)
    day.ok("iceberg", "publish", "--now", NOON)
    day.world.catalog(AFTER)
    planned = day.ok("iceberg", "optimize", "--dry-run", "--now", AFTER).out.splitlines()
    assert planned == [f"log.events {DAY}: join its manifests", "log.events: expire 1 snapshot"]
    assert "(replace)" in day.ok("iceberg", "optimize", "--now", AFTER).out


def test_the_json_of_every_command_is_one_document(day: Prism) -> None:
    for words in (
        ("plan", "--now", NOON),
        ("publish", "--now", NOON),
        ("status",),
        ("history", "log.events"),
        ("optimize", "--dry-run", "--now", NOON),
        ("optimize", "--now", NOON),
        ("adopt", "log.events", "--since", DAY),
        ("restore", "log.events", "--now", NOON),
        ("register", "log.events", "--now", NOON),
    ):
        assert day.ok("iceberg", *words, "--json").json is not None, words


def test_without_such_a_table_there_is_nothing_to_do(prism: Prism) -> None:
    prism.world.apply(a_table())
    assert prism.ok("iceberg", "publish").out == "no table file says `iceberg:`; nothing to do\n"
    assert prism.ok("iceberg", "status").out == "no table file says `iceberg:`\n"
    assert prism.ok("iceberg", "plan").out == "nothing to do\n"


@pytest.mark.parametrize("words", [("restore",), ("register",), ("register", "--anew")])
def test_a_table_that_is_not_iceberg_is_neither_restored_nor_registered(day: Prism, words: tuple[str, ...]) -> None:
    done = day("iceberg", *words, "log.clicks", "--now", NOON)
    fails(done, 2, "log.clicks is not published as an Iceberg table: write `iceberg: true` into its table file")
    in_one_line(done)


def test_days_of_the_old_format_are_told_and_leave_status_1(prism: Prism) -> None:
    prism.world.apply(a_table() + "timestamps: milliseconds\n")
    prism.world.drop(some_rows(3, utc(NOON)))
    prism.world.stream(NOON)
    prism.world.apply(a_table(iceberg="true"))
    done = prism("iceberg", "publish", "--now", NOON)
    assert done.status == 1
    assert f"log.events {DAY}: holds objects whose timestamps are in milliseconds" in done.err
    assert "1 day is not shown as it should" in prism.ok("iceberg", "status").out
    assert (
        "log.events: its Iceberg table does not show 1 day with timestamps in milliseconds"
        in prism("run", "--now", NOON).err
    )


def test_a_table_of_another_name_in_the_catalog_is_replaced_by_register_alone(day: Prism) -> None:
    day.ok("iceberg", "publish", "--now", NOON)
    publisher, table = day.world.context.iceberg, day.world.context.choose_tables(["log.events"])[0]
    publisher.unregister(table)
    theirs = Schema(NestedField(1, "x", LongType(), required=False))
    publisher.catalog.create_table(publisher.identifier(table), theirs, location="s3://lake/theirs")
    done = day("iceberg", "publish", "--now", NOON)
    assert done.status == 1
    assert "rename theirs, or have `prism iceberg register log.events` replace it" in done.err
    assert "is in the catalog as" in day.ok("iceberg", "register", "log.events", "--now", NOON).out
    assert "6" in day.ok("query", "--iceberg", "SELECT count(*) FROM log.events").out


def test_a_name_that_is_no_table_is_wrong_use(day: Prism) -> None:
    for words in (
        ("history", "log.none"),
        ("adopt", "log.none"),
        ("restore", "log.none"),
        ("adopt", "log.events", "--since", "x"),
    ):
        assert day("iceberg", *words).status == 2, words
    fails(day("query", "--iceberg", "SELECT * FROM log.none"), 2, "has no table log.none; does its table file say")
    fails(day("query", "--iceberg", "SELECT * FROM LOG.EVENTS"), 2, "has no table LOG.EVENTS; does its table file say")
    day.ok("iceberg", "publish", "--now", NOON)
    fails(day("query", "--iceberg", "SELECT * FROM LOG.EVENTS"), 2, "no table LOG.EVENTS; did you mean log.events?")
