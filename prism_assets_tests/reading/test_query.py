"""Queries: their rows, their types, and their errors."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import boto3
import pyarrow as pa
import pytest

from prism_assets.domain.errors import TerminalError, WrongUse
from prism_assets.reading.query import arrow_type, run_query
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table(), a_table("log.others"))
    world.drop(some_rows(3, utc(NOON)))
    world.drop(some_rows(2, utc(NOON)), stream="others")
    world.stream(NOON)
    world.catalog(NOON)
    return world


def test_a_query_may_join_tables(events: World) -> None:
    sql = "SELECT (SELECT count(*) FROM log.events), (SELECT count(*) FROM log.others)"
    assert events.query(sql) == [(3, 2)]


def test_a_query_may_name_its_own_tables(events: World) -> None:
    assert events.query("WITH few AS (SELECT id FROM log.events LIMIT 2) SELECT count(*) FROM few") == [(2,)]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT count(*) FROM log.events JOIN log.others USING (dt)", 6),
        ("SELECT count(*) FROM log.events AS e LEFT JOIN log.others AS o USING (id)", 3),
        ("WITH e AS (FROM log.events) SELECT count(*) FROM e JOIN (FROM log.others) USING (dt)", 6),
        ("WITH log AS (SELECT DATE '2026-03-01' AS dt) SELECT count(*) FROM log JOIN log.events USING (dt)", 3),
        ("SELECT count(*) FROM log.events WHERE dt IN (SELECT dt FROM log.others)", 3),
    ],
)
def test_a_query_may_name_tables_anywhere(events: World, sql: str, rows: int) -> None:
    assert events.query(sql) == [(rows,)]


def test_a_query_may_be_explained(events: World) -> None:
    assert "ARROW_SCAN" in str(events.query("EXPLAIN SELECT id FROM log.events"))
    assert ("id", "BIGINT") in [row[:2] for row in events.query("DESCRIBE log.events")]


def test_a_query_without_tables_runs(events: World) -> None:
    result = run_query(events.reader(), "SELECT 1 AS one, 'x' AS text")
    assert (result.columns, result.rows) == (("one", "text"), ((1, "x"),))


def test_the_partition_key_is_a_column(events: World) -> None:
    assert events.query("SELECT DISTINCT dt FROM log.events") == [(date(2026, 3, 1),)]
    assert events.query("SELECT count(*) FROM log.events WHERE dt = '2026-03-02'") == [(0,)]


def test_a_table_without_partitions_has_no_rows(world: World) -> None:
    world.apply(a_table())
    world.catalog(NOON)
    assert world.query("SELECT count(*) FROM log.events") == [(0,)]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("this is no sql", "this is not a query"),
        ("SELECT FROM WHERE", "this is not a query"),
        ("SELECT * FROM log.events WHERE", 'syntax error at or near "WHERE"$'),
        ("SELECT order FROM log.events", 'order is a word of SQL: write "order" where it names a column'),
        ("SELECT * FROM events", "events is not a table: write schema.table, such as log.events"),
        ("SELECT * FROM log.nothing", "the catalog has no table log.nothing; has `prism catalog` run"),
        ("SELECT * FROM LOG.NOTHING", "the catalog has no table LOG.NOTHING; has `prism catalog` run"),
        ("SELECT * FROM Log.EVENTS", r"the catalog has no table Log.EVENTS; did you mean log\.events\?"),
        ("SELECT nothing FROM log.events", "the query is wrong"),
        ("SELECT idd FROM log.events", r"there is no column idd; log\.events has time, id, dt$"),
        ("SELECT nofunction(id) FROM log.events", "nofunction does not exist"),
        ("SELECT lenght('x') FROM log.events", 'lenght does not exist! Did you mean "length"'),
    ],
)
def test_a_wrong_query_is_told_in_one_line(events: World, sql: str, words: str) -> None:
    with pytest.raises(WrongUse, match=words) as raised:
        events.query(sql)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("sql", ["", ";", "-- nothing"])
def test_a_query_of_nothing_is_told_or_has_no_rows(events: World, sql: str) -> None:
    with suppress(WrongUse):
        assert events.query(sql) == []


def test_a_query_that_fails_halfway_is_told(events: World) -> None:
    with pytest.raises(TerminalError, match="the query failed"):
        events.query("SELECT CAST('x' AS bigint) FROM log.events")


def test_every_type_is_read_as_what_it_is(world: World) -> None:
    kinds: dict[str, tuple[str, Any, Any]] = {
        "s": ("string, length: 9", "abc", "abc"),
        "b": ("boolean", True, True),
        "i2": ("smallint", -3, -3),
        "i4": ("integer", 1 << 30, 1 << 30),
        "i8": ("bigint", 1 << 60, 1 << 60),
        "f4": ("real", 0.5, 0.5),
        "f8": ("double", 0.1, 0.1),
        "d": ('"decimal(12, 4)"', "123.4567", Decimal("123.4567")),
        "t": ("timestamp", "2026-03-01T12:00:00.123Z", datetime(2026, 3, 1, 12, 0, 0, 123_000, timezone.utc)),
        "day": ("date", "2026-02-28", date(2026, 2, 28)),
        "j": ("json", {"a": [1, None]}, '{"a":[1,null]}'),
    }
    world.apply(a_table(columns=[f"{{name: {name}, type: {kind}}}" for name, (kind, _, _) in kinds.items()]))
    world.drop(some_rows(1, utc(NOON), **{name: value for name, (_, value, _) in kinds.items()}))
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    names = ", ".join(kinds)
    full, empty = world.query(f"SELECT {names} FROM log.events ORDER BY id")
    assert full == tuple(expected for _, _, expected in kinds.values())
    assert empty == (None,) * len(kinds)


@pytest.mark.parametrize(
    ("hive", "arrow"),
    [
        ("varchar(20)", pa.string()),
        ("decimal(12,4)", pa.decimal128(12, 4)),
        ("boolean", pa.bool_()),
        ("smallint", pa.int16()),
        ("int", pa.int32()),
        ("bigint", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("date", pa.date32()),
    ],
)
def test_hive_types_have_their_arrow_types(hive: str, arrow: pa.DataType) -> None:
    assert arrow_type(hive) == arrow


def test_a_hive_type_of_other_tools_is_wrong_use() -> None:
    with pytest.raises(WrongUse, match="array<string> is not a type"):
        arrow_type("array<string>")


DUCKDB_HAS_THEM = ("temp", "system", "memory", "main", "lake")


@pytest.fixture
def same_names(world: World) -> World:
    """A world of tables whose schemas have names of DuckDB's databases and schemas. The nth table has n rows."""
    world.apply(*(a_table(f"{schema}.{schema}_user") for schema in DUCKDB_HAS_THEM), a_table("log.events"))
    for rows, schema in enumerate(DUCKDB_HAS_THEM, 1):
        world.drop(some_rows(rows, utc(NOON)), stream=f"{schema}_user")
    world.stream(NOON)
    world.catalog(NOON)
    return world


QUERIES = (
    "SELECT count(*) FROM {0}.{0}_user",
    "SELECT count({0}.{0}_user.id) FROM {0}.{0}_user",
    """SELECT count(u.id) /* {0}.{0}_user */ FROM "{0}" . "{0}_user" AS u WHERE 'é' <> '{0}.{0}_user'""",
    "SELECT count(*) FROM lake.{0}.{0}_user",
    "WITH few AS (FROM {0}.{0}_user) SELECT count(*) FROM few JOIN (FROM {0}.{0}_user) USING (dt, id)",
)


def test_a_schema_may_be_called_like_one_that_duckdb_has_itself(same_names: World) -> None:
    for rows, schema in enumerate(DUCKDB_HAS_THEM, 1):
        for sql in QUERIES:
            assert same_names.query(sql.format(schema)) == [(rows,)], (schema, sql)
        assert ("id", "BIGINT") in [row[:2] for row in same_names.query(f"DESCRIBE {schema}.{schema}_user")]
        assert "ARROW_SCAN" in str(same_names.query(f"EXPLAIN SELECT id FROM {schema}.{schema}_user"))


def test_the_tables_of_the_lake_can_be_listed_with_their_columns(same_names: World) -> None:
    sql = "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns"
    found = same_names.query(sql)
    users = {(schema, f"{schema}_user") for schema in DUCKDB_HAS_THEM}
    assert {row[:2] for row in found} == {("log", "events"), *users}
    assert [row[2:] for row in found if row[0] == "log"] == [
        ("time", "TIMESTAMP WITH TIME ZONE"), ("id", "BIGINT"), ("dt", "DATE")
    ]  # fmt: skip
    tables = same_names.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'log'")
    assert tables == [("events",)]
    assert {row[1:3] for row in same_names.query("SHOW TABLES")} == {row[:2] for row in found}


def test_tables_of_other_tools_are_no_tables_of_the_lake_and_break_no_query(events: World) -> None:
    glue: Any = boto3.client("glue", endpoint_url=events.settings.glue_endpoint, region_name="us-east-1")
    ours = glue.get_table(DatabaseName=f"{events.settings.glue_database_prefix}log", Name="events")["Table"]
    for schema in ("information_schema", "strangers", "log_symlink"):
        database = f"{events.settings.glue_database_prefix}{schema}"
        glue.create_database(DatabaseInput={"Name": database})
        for name, kind in (("odd", "array<string>"), ("sound", "bigint")):
            storage = {**ours["StorageDescriptor"], "Columns": [{"Name": "id", "Type": kind}]}
            kept = {key: ours[key] for key in ("TableType", "Parameters", "PartitionKeys")}
            glue.create_table(DatabaseName=database, TableInput={**kept, "Name": name, "StorageDescriptor": storage})
    listed = events.query("SELECT table_schema, table_name FROM information_schema.tables ORDER BY ALL")
    assert listed == [("log", "events"), ("log", "others"), ("strangers", "sound")]
    assert events.query("SELECT count(*) FROM log.events") == [(3,)]


def test_a_table_of_duckdb_that_does_not_exist_is_told_in_one_line(world: World) -> None:
    with pytest.raises(WrongUse, match="nothing does not exist"):
        world.query("SELECT * FROM information_schema.nothing")
