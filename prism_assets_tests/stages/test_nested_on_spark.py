"""Spark reads nested columns by the types in Glue: old and new objects side by side, and merged ones."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from prism_assets.engine.sessions import open_session
from prism_assets_tests.stages.test_nested_changes import (
    ADDED,
    DAY,
    NAME,
    NEW_VALUES,
    OLD,
    RENAMED,
    WITHOUT_ID,
    Readers,
    a_file,
    arrive,
    each_stage,
    evolve,
    fields,
)
from prism_assets_tests.world import World

# pyspark leaves sockets open and calls deprecated code.
pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]

WITHOUT_THE_STRUCT = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"
"""The way of Spark 4.0 (SPARK-53535): a struct is null where it has none of the fields that are asked for."""


@pytest.fixture
def spark(stack: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session of Spark, which reads local files."""
    from pyspark.sql import SparkSession

    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", stack["SPARK_CONNECT_AUTHENTICATE_TOKEN"])
    address = f"{stack['PRISM_SPARK_REMOTE']}/;session_id={uuid.uuid4()}"
    session: Any = open_session(address, lambda wanted: SparkSession.builder.remote(wanted).create())
    try:
        yield session
    finally:
        session.stop()


@pytest.mark.parametrize(("option", "structs"), [("false", [True, True, False]), ("true", [False, False, False])])
def test_a_struct_is_as_it_was_where_only_a_new_field_is_asked_for(
    world: World, spark: Any, option: str, structs: Sequence[bool]
) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    world.catalog(f"{DAY}T13:10")
    spark.conf.set(WITHOUT_THE_STRUCT, option)
    read = spark.read.schema("id bigint, account struct<zip: string>").parquet(*Readers(world).paths())
    rows = read.selectExpr("account IS NOT NULL AS has_account", "account.zip AS zip").orderBy("id").collect()
    assert [(row.has_account, row.zip) for row in rows] == [(has_account, None) for has_account in structs]


@pytest.mark.parametrize(
    ("after", "new"),
    [
        (ADDED, NEW_VALUES),
        (RENAMED, [{"account": {"id": 9, "name": "bob", "items": [{"sku": "b", "n": 2}]}, "attrs": {}}]),
        (fields(NAME), WITHOUT_ID),
    ],
    ids=["added", "renamed", "dropped"],
)
def test_changed_columns_are_read_as_by_other_readers_by_name(
    world: World, spark: Any, after: str, new: Sequence[Mapping[str, Any]]
) -> None:
    rows = evolve(world, a_file(), after, new)
    readers = Readers(world)

    def look() -> None:
        found = by_spark(spark, readers)
        assert len(found) == len(rows)
        assert found == readers.by_name()[0]

    each_stage(world, look)


def by_spark(spark: Any, readers: Readers) -> dict[int, tuple[Any, Any]]:
    """Reads the objects of all days with the types that Glue shows. Spark takes no length in a schema of a reader."""
    (kinds,) = readers.glue()["table"]
    account, attrs = re.sub(r"varchar\(\d+\)", "string", kinds).split(" ")
    read = spark.read.schema(f"id bigint, account {account}, attrs {attrs}").parquet(*readers.paths())
    rows = [row.asDict(recursive=True) for row in read.select("id", "account", "attrs").collect()]
    return {row["id"]: (row["account"], row["attrs"]) for row in rows}
