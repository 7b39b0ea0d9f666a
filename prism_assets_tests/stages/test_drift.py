"""Drift: fields without a column are counted with the batch, reported, and offered as columns."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import Thread
from typing import NoReturn

import pytest

from prism_assets.domain.columns.column import Column
from prism_assets.domain.errors import StoreUnavailable
from prism_assets.domain.tables.drift import MOST_KEYS, FieldKind, SeenField, within_limit
from prism_assets.drafting.patch import column_lines, draft_fields, draft_patch, evolved_fields, field_lines
from prism_assets.metadata.tables import undefined_fields
from prism_assets.stages.checks.intake import UNDEFINED_FIELDS
from prism_assets.stages.drift import Drift, read_drift
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.engines import FailingEngine, another_worker, expire_leases, rest_is_over
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table())
    return world


def drift(world: World) -> Drift:
    return read_drift(world.context, "log.events")


def counts(world: World) -> dict[tuple[str, str], int]:
    return {(field.key, field.kind.value): field.count for field in drift(world).fields}


def test_fields_are_counted_with_first_last_and_one_object(events: World) -> None:
    events.drop([*some_rows(2, utc(NOON)), *some_rows(3, utc(NOON), more="x")])
    events.stream(NOON)
    key = events.drop(some_rows(2, utc(NOON), more=1))
    events.drop(some_rows(2, utc(NOON), more="y", other=None))
    events.stream("2026-03-01T13:00")
    assert counts(events) == {("more", "text"): 5, ("more", "number"): 2}
    number, text = drift(events).fields
    assert (number.place, number.first_time) == (f"s3://staging/{key}:1", utc("2026-03-01T13:00"))
    assert (text.first_time, text.last_time) == (utc(NOON), utc("2026-03-01T13:00"))


def test_an_object_that_is_tried_again_or_repaired_counts_once(events: World) -> None:
    key = events.drop(some_rows(3, utc(NOON), more="x"))
    worker = another_worker(events, FailingEngine(events.context.engine, times=1))
    assert worker.stream(NOON).retried == 1
    assert counts(events) == {}
    rest_is_over(events)
    start_batch(events.context, None)  # a worker dies with it
    expire_leases(events)
    rest_is_over(events)
    events.stream(NOON)
    rest_is_over(events)
    events.stream(NOON)
    assert counts(events) == {("more", "text"): 3}, key
    (small,) = [item.key for item in events.context.stores.list("lake", "") if "/live/" in item.key]
    events.context.stores.delete("lake", [small])
    assert run_repair(events.context).repaired == 1
    assert counts(events) == {("more", "text"): 3}


def test_a_key_that_gets_a_column_is_no_drift_any_more(events: World) -> None:
    events.drop(some_rows(3, utc(NOON), more="x", other=1))
    events.stream(NOON)
    events.apply(a_table(columns=["{name: more, type: string}"]))
    assert counts(events) == {("other", "number"): 3}
    with events.context.database.begin() as connection:
        statement = "SELECT count(*) FROM prism_undefined_fields WHERE field_key = 'more'"
        assert connection.exec_driver_sql(statement).scalar_one() == 0
    events.apply(a_table(columns=["{name: more, type: string}", "{name: rest, type: json, source: '*'}"]))
    assert counts(events) == {}


def test_a_patch_has_a_column_for_each_key_by_the_rule_of_drafts(events: World) -> None:
    events.drop(some_rows(100, utc(NOON), userName="ann", at="2026-03-01T11:00:00Z", n=5, share=0.5, deep={"a": 1}))
    events.stream(NOON)
    context, found = events.context, drift(events)
    columns = [str(column) for column in draft_patch(context.stores.config, found.table, found.fields)]
    assert [column.partition("  #")[0] for column in columns] == [
        "  - {name: at, type: timestamp}",
        '  - {name: deep, type: "struct<a: bigint>"}',
        "  - {name: n, type: bigint}",
        "  - {name: share, type: double}",
        "  - {name: user_name, type: string, source: userName, length: 256}",
    ]
    assert columns[0].endswith("# 100 of 100 lines")
    events.apply(a_table(columns=[column.partition("- ")[2] for column in columns]))
    assert drift(events).fields == ()


def test_a_key_whose_objects_are_gone_is_drafted_as_text(events: World) -> None:
    key = events.drop(some_rows(1, utc(NOON), more=1))
    events.stream(NOON)
    events.context.stores.delete("staging", [key])
    found = drift(events)
    (column,) = draft_patch(events.context.stores.config, found.table, found.fields)
    assert str(column) == "  - {name: more, type: string, length: 65535}  # in no current line"


def test_a_table_has_no_more_than_so_many_keys(events: World) -> None:
    for number in range(2):
        keys = {f"k{number}_{n}": n for n in range(MOST_KEYS - 100)}
        events.drop([{**row, **keys} for row in some_rows(1, utc(NOON))])
    events.stream(NOON)
    assert len(counts(events)) == MOST_KEYS
    assert drift(events).is_full


def test_only_keys_that_are_known_are_counted_where_there_is_no_room() -> None:
    seen = [a_field(f"k{number}") for number in range(3)]
    known = {(1, "", f"x{number}") for number in range(MOST_KEYS - 2)} | {(1, "", "k2")}
    assert [field.key for field in within_limit(seen, known)] == ["k0", "k2"]
    assert within_limit(seen, {(2, "", f"x{number}") for number in range(MOST_KEYS)}) == seen


def a_field(key: str, table_id: int = 1) -> SeenField:
    return SeenField(table_id=table_id, key=key, kind=FieldKind.TEXT, count=1, bucket="staging", object_key="k", line=1)


def test_batches_with_the_same_keys_in_any_order_do_not_lock_each_other_out(world: World) -> None:
    """Two batches with objects of two tables commit a hundred times, either one first."""
    world.apply(a_table(), a_table("log.clicks"))
    ids = [table.table_id for table in world.context.choose_tables(None)]
    fields = [a_field(f"k{number}", table) for table in ids for number in range(5)]
    failures: list[BaseException] = []

    def count(seen: list[SeenField]) -> None:
        try:
            for _ in range(50):
                with world.context.database.begin() as connection:
                    undefined_fields.count_fields(connection, seen, utc(NOON))
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=count, args=(seen,)) for seen in (fields, fields[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with world.context.database.begin() as connection:
        assert {field.count for field in undefined_fields.load_fields(connection, ids)} == {100}


def test_the_check_tells_of_new_fields_for_a_week(events: World) -> None:
    assert check(events, UNDEFINED_FIELDS, NOON).passed
    events.drop(some_rows(3, utc(NOON), more="canary"))
    events.stream(NOON)
    outcome = check(events, UNDEFINED_FIELDS, NOON)
    assert not outcome.passed
    assert "more (as in s3://staging/events/2026/000001.gz:1)" in outcome.sentence
    assert "canary" not in outcome.sentence
    assert outcome.figures == {"undefined keys": 1, "new keys": 1}
    later = check(events, UNDEFINED_FIELDS, (utc(NOON) + timedelta(days=8)).strftime("%Y-%m-%dT%H:%M"))
    assert later.passed
    assert later.figures == {"undefined keys": 1, "new keys": 0}


NESTED = a_table(
    columns=[
        '{name: user, type: "struct<id: bigint, plans: list<struct<code: string(8)>>>"}',
        "{name: labels, type: map, key: {length: 64}, value: {type: bigint}}",
    ]
)


def test_keys_inside_structs_are_drift_by_path_until_a_field_reads_them(world: World) -> None:
    world.apply(NESTED)
    user = {"id": 1, "zz": 1, "createdAt": "2026-03-01T11:00:00Z", "plans": [{"code": "a", "zz": {"deep": 1}}]}
    key = world.drop(some_rows(3, utc(NOON), user=user, labels={"any": 1}))
    world.stream(NOON)
    assert [(field.path, field.kind.value, field.count) for field in drift(world).fields] == [
        ("user.createdAt", "text", 3),
        ("user.zz", "number", 3),
        ("user.plans[].zz", "nested", 3),
    ]
    outcome = check(world, UNDEFINED_FIELDS, NOON)
    assert f"user.plans[].zz (as in s3://staging/{key}:1)" in outcome.sentence
    assert outcome.figures == {"undefined keys": 3, "new keys": 3}


def test_a_patch_has_a_field_for_each_key_in_its_struct(world: World) -> None:
    world.apply(NESTED)
    user = {"zz": 1, "createdAt": "2026-03-01T11:00:00Z", "plans": [{"zz": {"deep": 1}}, {"zz": None}]}
    world.drop(some_rows(3, utc(NOON), user=user))
    world.stream(NOON)
    found = drift(world)
    drafted = draft_fields(world.context.stores.config, found.table, found.fields)
    assert field_lines(drafted) == [
        "# below fields of user:",
        "  - {name: created_at, type: timestamp, source: createdAt}  # 3 in current lines",
        "  - {name: zz, type: bigint}  # 3 in current lines",
        "# or in the brackets of user: zz: bigint",
        "# below fields of user.plans[]:",
        '  - {name: zz, type: "struct<deep: bigint>"}  # 3 in current lines',
        "# or in the brackets of user.plans[]: zz: struct<deep: bigint>",
    ]
    assert draft_patch(world.context.stores.config, found.table, found.fields) == []


def test_keys_of_a_struct_that_is_gone_or_read_now_are_no_drift(world: World) -> None:
    world.apply(NESTED)
    with world.context.database.begin() as connection:
        places = (("user", "zz"), ("gone", "zz"), ("user", "id"))
        fields = [replace(a_field(key), within=within) for within, key in places]
        undefined_fields.count_fields(connection, fields, utc(NOON))
    assert [field.path for field in drift(world).fields] == ["user.zz"]


EVOLVING = "contract: {new_fields: evolve}\n"


def test_new_fields_of_an_evolving_table_become_columns_of_the_next_objects(world: World) -> None:
    world.apply(a_table() + EVOLVING)
    world.drop(some_rows(3, utc(NOON), userName="ann", n=1))
    assert world.stream(NOON).errors == ()
    (table,) = world.context.choose_tables(None)
    assert [(column.name, column.type.name, column.evolved) for column in table.columns[2:]] == [
        ("n", "double", True),
        ("user_name", "string", True),
    ]
    assert (table.version, drift(world).fields) == (2, ())
    world.drop(some_rows(2, utc(NOON), userName="bea", n=None))
    world.stream(NOON)
    world.catalog(NOON)
    assert world.query("SELECT user_name, n, count(*) FROM log.events GROUP BY ALL ORDER BY ALL") == [
        ("bea", None, 2),
        (None, None, 3),
    ]
    assert world.context.choose_tables(None)[0].version == 2, "nothing was new any more"


def test_a_key_that_cannot_be_kept_as_it_is_becomes_no_column(world: World) -> None:
    world.apply(a_table() + EVOLVING)
    world.drop([row | {"a\0b": 1} for row in some_rows(3, utc(NOON))])
    assert world.stream(NOON).errors == ()
    assert len(world.context.choose_tables(None)[0].columns) == 2
    assert [field.key for field in drift(world).fields] == ["a\N{REPLACEMENT CHARACTER}b"]


def test_a_new_column_of_a_long_key_has_a_name_that_the_file_may_have(world: World) -> None:
    key = "QWxQaEFiRXRBbFBoQWJFdEFsUGhBYkV0QWxQaEFiRXRBbFBoQWJFdA"
    world.apply(a_table() + EVOLVING)
    world.drop([row | {key: "x"} for row in some_rows(3, utc(NOON))])
    assert world.stream(NOON).errors == ()
    table = drift(world).table
    assert [column.source for column in table.columns[2:]] == [key]
    lines = [line.partition("- ")[2] for line in column_lines(table, ())]
    assert world.apply(a_table(columns=lines) + EVOLVING).notices == ()


def test_a_file_without_the_new_column_keeps_it_and_says_so_till_it_has_the_line(world: World) -> None:
    world.apply(a_table() + EVOLVING)
    world.drop(some_rows(3, utc(NOON), at="2026-03-01T11:00:00Z", ts=1772366400000, share=0.5))
    world.stream(NOON)
    before = world.context.choose_tables(None)[0]
    plan = world.apply(a_table() + EVOLVING)
    assert plan.lines == ()
    assert len(plan.notices) == 3
    assert "keeps the column at timestamp, which came by its contract and is not in" in plan.notices[0]
    assert world.context.choose_tables(None) == [before]
    world.apply(a_table(columns=["{name: mine, type: string}"]) + EVOLVING)
    assert [column.name for column in world.context.choose_tables(None)[0].columns] == [
        "time", "id", "mine", "at", "share", "ts",
    ]  # fmt: skip
    found = drift(world)
    lines = [line.partition("- ")[2] for line in column_lines(found.table, ())]
    assert world.apply(a_table(columns=["{name: mine, type: string}", *lines]) + EVOLVING).notices == ()
    now = world.context.choose_tables(None)[0].columns
    assert [replace(column, evolved=False) for column in found.table.columns] == list(now)


@pytest.mark.parametrize(
    ("first", "later", "type_name", "stored"),
    [
        (7, 7.95, "double", [7.0, 7.95]),
        (1772366400000, 0, "double", [1772366400000.0, 0.0]),
        (1234567890123456789, 12, "bigint", [1234567890123456789, 12]),
        ("2026-03-01", "2026-03-01T23:59:59-08:00", "timestamp", ["2026-03-01 00:00:00", "2026-03-02 07:59:59"]),
        ({"a": 1}, 1.10, "json", ['{"a":1}', "1.1"]),
        ({}, {"a": "b" * 300}, "json", ["{}", f'{{"a":"{"b" * 300}"}}']),
        ("x", "y" * 300, "string", ["x", "y" * 300]),
        ("1772366400.123456789", "soon", "string", ["1772366400.123456789", "soon"]),
    ],
)
def test_a_new_column_has_room_for_what_its_first_objects_do_not_have(
    world: World, first: object, later: object, type_name: str, stored: list[object]
) -> None:
    world.apply(a_table() + EVOLVING)
    world.drop(some_rows(1, utc(NOON), created_at=first))
    world.stream(NOON)
    assert drift(world).table.columns[2].type.name == type_name
    for value in (first, later):
        world.drop(some_rows(1, utc(NOON), created_at=value))
        assert world.stream(NOON).unfit_values == 0
    world.catalog(NOON)
    found = [value for (value,) in world.query("SELECT created_at FROM log.events WHERE created_at IS NOT NULL")]
    if type_name == "timestamp":
        found = [f"{value:%Y-%m-%d %H:%M:%S}" for value in found]
    assert sorted(map(str, found)) == sorted(map(str, stored))


def test_true_and_false_are_a_column_of_their_own_type_and_what_is_neither_is_counted(world: World) -> None:
    world.apply(a_table() + EVOLVING)
    world.drop(some_rows(1, utc(NOON), ok=True))
    world.stream(NOON)
    assert drift(world).table.columns[2].type.name == "boolean"
    world.drop(some_rows(1, utc(NOON), ok=2))
    assert world.stream(NOON).unfit_values == 1


def user_type(world: World) -> str:
    return world.context.choose_tables(None)[0].column("user").type.name


def test_new_keys_inside_structs_of_an_evolving_table_become_fields_of_the_next_objects(world: World) -> None:
    world.apply(NESTED + EVOLVING)
    user = {"id": 1, "zz": 1, "plans": [{"code": "a", "createdAt": "2026-03-01", "deep": {"a": 1}}]}
    world.drop(some_rows(3, utc(NOON), user=user))
    assert world.stream(NOON).errors == ()
    evolved = "struct<id: bigint, plans: list<struct<code: string(8), created_at: timestamp, deep: json>>, zz: double>"
    assert (user_type(world), drift(world).fields) == (evolved, ())
    world.drop(some_rows(2, utc(NOON), user={**user, "zz": 2.5}))
    world.stream(NOON)
    world.catalog(NOON)
    assert world.query('SELECT "user".zz, "user".plans[1].deep, count(*) FROM log.events GROUP BY ALL ORDER BY 1') == [
        (2.5, '{"a":1}', 2),
        (None, None, 3),
    ]
    assert world.context.choose_tables(None)[0].version == 2, "nothing was new any more"


def test_a_file_without_the_new_field_keeps_it_and_says_so_till_it_has_the_line(world: World) -> None:
    world.apply(NESTED + EVOLVING)
    world.drop(some_rows(3, utc(NOON), user={"id": 1, "zz": "x"}))
    world.stream(NOON)
    before = world.context.choose_tables(None)[0]
    plan = world.apply(NESTED + EVOLVING)
    assert (plan.lines, len(plan.notices)) == ((), 1)
    assert "keeps the field user.zz string, which came by its contract and is not in" in plan.notices[0]
    assert world.context.choose_tables(None) == [before]
    assert field_lines(evolved_fields(before)) == [
        "# below fields of user:",
        "  - {name: zz, type: string, length: 65535}  # came by the contract",
        "# or in the brackets of user: zz: string",
    ]
    plan = world.apply(NESTED.replace("struct<id: bigint,", "struct<id: bigint, zz: string,") + EVOLVING)
    assert plan.notices == ()
    assert user_type(world).startswith("struct<id: bigint, zz: string, plans")
    assert evolved_fields(world.context.choose_tables(None)[0]) == []


def test_a_dropped_field_does_not_return_by_the_contract(world: World) -> None:
    world.apply(NESTED + EVOLVING)
    world.drop(some_rows(3, utc(NOON), user={"id": 1}))
    world.stream(NOON)
    world.catalog(NOON)
    without = NESTED.replace("struct<id: bigint,", "struct<")
    world.apply(without + EVOLVING)
    world.drop(some_rows(3, utc(NOON), user={"id": 1, "new": True}))
    assert world.stream(NOON).errors == ()
    assert user_type(world) == "struct<plans: list<struct<code: string(8)>>, new: boolean>"
    assert [field.path for field in drift(world).fields] == ["user.id"]
    world.drop(some_rows(1, utc(NOON), user={"id": 2}))
    assert without_drafts(world).stream(NOON).errors == ()


def test_a_dropped_column_does_not_return_by_the_contract(world: World) -> None:
    world.apply(a_table(columns=["{name: color, type: string}"]) + EVOLVING)
    for number, file in enumerate((None, a_table() + EVOLVING), 1):
        if file:
            world.apply(file)
        world.drop(some_rows(number, utc(NOON), color="red"))
        assert without_drafts(world).stream(NOON).errors == ()
        world.catalog(NOON)
    assert [field.path for field in drift(world).fields] == ["color"]
    assert [column.name for column in drift(world).table.columns] == ["time", "id"]


def without_drafts(world: World) -> World:
    """The same world, where nobody may read lines for a new column or field."""

    def fail(*_given: object) -> NoReturn:
        raise AssertionError("lines are read for a name that does not return")

    return replace(world, context=replace(world.context, draft_columns=fail, draft_fields=fail))


def test_a_struct_gets_fields_up_to_the_limit_of_the_contract_and_then_the_table_is_told(world: World) -> None:
    world.apply(NESTED + "contract: {new_fields: evolve, most_columns: 4}\n")
    keys = {f"name_{letter}": 1 for letter in "abcde"}
    world.drop([*some_rows(3, utc(NOON), user={"name_e": 1}), *some_rows(1, utc(NOON), user=keys)])
    world.stream(NOON)
    assert [name.strip() for name in user_type(world).split("plans")[1].split(",")[1:]] == [
        "name_e: double", "name_a: double>",
    ]  # fmt: skip
    outcome = check(world, UNDEFINED_FIELDS, NOON)
    assert "its struct user has 4 fields" in outcome.sentence


def test_what_hinders_new_columns_hinders_no_conversion(world: World) -> None:
    world.apply(a_table() + EVOLVING)

    def fail(*_given: object) -> list[Column]:
        raise StoreUnavailable("the store coughed")

    coughing = replace(world, context=replace(world.context, draft_columns=fail))
    world.drop(some_rows(3, utc(NOON), more="x"))
    report = coughing.stream(NOON)
    assert (report.rows_out, report.errors) == (3, ("the store coughed",))
    world.stream(NOON)
    assert world.context.choose_tables(None)[0].version == 2


def test_only_tables_that_say_so_evolve(world: World) -> None:
    world.apply(a_table(), a_table("log.clicks") + EVOLVING)
    for stream in ("events", "clicks"):
        world.drop(some_rows(1, utc(NOON), more="x"), stream=stream)
    world.stream(NOON)
    assert {str(table.name): table.version for table in world.context.choose_tables(None)} == {
        "log.clicks": 2,
        "log.events": 1,
    }
