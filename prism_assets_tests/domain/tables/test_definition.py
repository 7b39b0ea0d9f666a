"""Event dates and column types of a table."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.types import (
    BigIntType,
    DecimalType,
    IntegerType,
    JsonType,
    RealType,
    StringType,
    TimestampType,
)
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.records.joins import Group, JoinOptions, Member
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.tables.options import IcebergOptions
from prism_assets_tests.builders import a_table, utc


def in_zone(zone: str) -> TableDefinition:
    return parse_table_file(a_table(timezone=zone), "t.yaml")


def test_the_event_date_is_that_of_the_tables_zone() -> None:
    instant = datetime(2018, 10, 23, 23, 0, 23, tzinfo=timezone.utc)
    assert in_zone("Asia/Tokyo").today(instant) == date(2018, 10, 24)
    assert in_zone("UTC").today(instant) == date(2018, 10, 23)


@pytest.mark.parametrize(
    ("zone", "end"),
    [
        ("UTC", "2026-03-09T00:00"),
        ("Asia/Tokyo", "2026-03-08T15:00"),
        ("America/New_York", "2026-03-09T04:00"),
        ("Asia/Kathmandu", "2026-03-08T18:15"),
    ],
)
def test_a_day_ends_at_midnight_of_its_zone(zone: str, end: str) -> None:
    assert in_zone(zone).day_ends(date(2026, 3, 8)) == utc(end)


ODD_ZONES = ["UTC", "Asia/Tokyo", "America/Sao_Paulo", "Asia/Beirut", "Africa/Casablanca", "Pacific/Apia"]
"""Some change their clocks at midnight; Apia went without the 30th of December 2011."""


@given(st.dates(date(1990, 1, 1), date(2100, 1, 1)), st.sampled_from(ODD_ZONES))
@example(date(2011, 12, 29), "Pacific/Apia")
@example(date(2011, 12, 30), "Pacific/Apia")
@example(date(2018, 11, 3), "America/Sao_Paulo")
@example(date(2018, 2, 17), "America/Sao_Paulo")
def test_a_day_ends_with_its_last_instant_neither_before_nor_after(day: date, zone: str) -> None:
    table = in_zone(zone)
    end = table.day_ends(day)
    assert table.today(end) > day
    assert table.today(end - timedelta(microseconds=1)) <= day


GLUE_TYPES = [
    (Column(name="a", source="a", type=StringType(), length=20), "varchar(20)"),
    (Column(name="a", source="a", type=JsonType(), length=65_535), "varchar(65535)"),
    (Column(name="a", source="a", type=DecimalType(12, 4)), "decimal(12,4)"),
    (Column(name="a", source="a", type=IntegerType()), "int"),
    (Column(name="a", source="a", type=RealType()), "float"),
    (Column(name="a", source="a", type=BigIntType()), "bigint"),
    (Column(name="a", source="a", type=TimestampType()), "timestamp"),
]


@pytest.mark.parametrize(("column", "glue"), GLUE_TYPES)
def test_column_types_have_their_hive_names(column: Column, glue: str) -> None:
    assert column.glue_type == glue


def test_a_column_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        in_zone("UTC").column("nothing")


STORED = (
    '{"accept_from":"arrival","columns":['
    '{"column_id":1,"length":null,"name":"time","precision":null,"required":true,"scale":null,"source":"event_time",'
    '"source_offset":null,"time_unit":"milliseconds","type":"timestamp","zone_offset":"+09:00"},'
    '{"column_id":2,"length":null,"name":"price","precision":12,"required":false,"scale":4,"source":"price",'
    '"source_offset":null,"time_unit":null,"type":"decimal","zone_offset":null},'
    '{"column_id":3,"length":2000,"name":"path","precision":null,"required":false,"scale":null,"source":"path",'
    '"source_offset":null,"time_unit":null,"type":"string","zone_offset":null},'
    '{"column_id":4,"length":65535,"name":"payload","precision":null,"required":false,"scale":null,"source":"payload",'
    '"source_offset":null,"time_unit":null,"type":"json","zone_offset":null},'
    '{"column_id":5,"length":null,"name":"score","precision":null,"required":false,"scale":null,"source":"score",'
    '"source_offset":"+01:00","time_unit":null,"type":"double","zone_offset":null}],'
    '"description":"","future_days":3,"merge":{"interval":3600,"max_objects":2000,"sort_by":["time"],'
    '"target_bytes":134217728},"name":{"physical_schema":"log","physical_table":"pv_log","schema":"log",'
    '"table":"pv_log"},"owner":null,"partition_column":"time","past_days":21,"retention_days":null,"streams":[],'
    '"table_id":7,"timezone":"UTC","version":2}'
)
"""A definition as stored in installations."""


@pytest.mark.parametrize("column", [row[0] for row in GLUE_TYPES], ids=lambda column: column.type.name)
def test_a_column_survives_the_way_through_the_database(column: Column) -> None:
    assert Column.from_document(json.loads(json.dumps(column.to_document()))) == column


def test_the_description_of_a_column_survives_and_is_stored_only_where_there_is_one() -> None:
    column = Column(name="n", type=BigIntType(), source="n", description="how many")
    assert Column.from_document(json.loads(json.dumps(column.to_document()))) == column
    assert "description" not in replace(column, description=None).to_document()


def test_a_stored_definition_is_read_and_written_byte_by_byte() -> None:
    assert TableDefinition.from_json(STORED).to_json() == STORED


def test_a_definition_of_before_may_say_less() -> None:
    document = json.loads(STORED)
    for column in document["columns"]:
        for key in ("precision", "scale", "zone_offset"):
            if column[key] is None:
                del column[key]
    assert TableDefinition.from_document(document).to_json() == STORED


def test_a_definition_with_a_type_of_a_later_version_is_told() -> None:
    with pytest.raises(InvariantBroken, match="column score cannot be read: this version has no type triple; use the"):
        TableDefinition.from_json(STORED.replace("double", "triple"))


@pytest.mark.parametrize(
    ("stored", "by_a_later_version", "told"),
    [
        ('"name":"price"', '"name":"price","masked":true', "the definition of column price says masked"),
        ('"past_days":21', '"past_days":21,"sealed":true', r"the definition of log\.pv_log says sealed"),
        (
            '"past_days":21',
            '"iceberg":{"sealed":1},"past_days":21',
            r"definition of iceberg of log\.pv_log says sealed",
        ),
        ('"past_days":21', '"past_days":21,"file_format":3', r"log\.pv_log has file format 3"),
    ],
)
def test_what_a_later_version_stored_is_told_and_not_left_out(stored: str, by_a_later_version: str, told: str) -> None:
    assert STORED.count(stored) == 1
    with pytest.raises(InvariantBroken, match=f"{told}, unknown to this version; use the version that"):
        TableDefinition.from_json(STORED.replace(stored, by_a_later_version))


def test_metrics_are_those_of_the_columns_by_which_rows_are_sorted() -> None:
    table = parse_table_file(a_table(columns=["{name: color, type: string}"]), "t.yaml")
    columns = tuple(replace(column, column_id=number + 3) for number, column in enumerate(table.columns))
    table = replace(table, columns=columns)
    assert table.metric_columns == (3,)
    assert replace(table, merge=replace(table.merge, sort_by=("time", "color", "id"))).metric_columns == (3, 5, 4)
    assert replace(table, merge=replace(table.merge, sort_by=())).metric_columns == (3,)
    assert replace(table, iceberg=IcebergOptions()).metric_columns == (3,)
    assert replace(table, iceberg=IcebergOptions(metrics=("color", "id"))).metric_columns == (5, 4)


def test_the_options_of_iceberg_are_stored_only_where_there_are_some() -> None:
    stored = TableDefinition.from_json(STORED)
    assert stored.iceberg is None
    table = replace(stored, iceberg=IcebergOptions(commit_seconds=5, metrics=("time", "path"), on_foreign="stop"))
    assert TableDefinition.from_json(table.to_json()) == table
    assert TableDefinition.from_json(table.to_json()).to_json() == table.to_json()


def test_tasks_get_neither_descriptions_nor_iceberg() -> None:
    """Older versions on executors refuse a definition with unknown fields."""
    stored = TableDefinition.from_json(STORED)
    described = tuple(replace(column, description="what it means") for column in stored.columns)
    assert replace(stored, columns=described, iceberg=IcebergOptions()).for_tasks().to_json() == STORED


def test_a_join_is_stored_only_where_there_is_one() -> None:
    log = in_zone("UTC")
    assert "join" not in json.loads(log.to_json())
    join = JoinOptions(
        key=("id",),
        groups=(Group(name="front", sequence=("time",), owner=True),),
        members=(Member(column="page", group="front", merge="last_non_null"),),
        window_seconds=10_800,
        lateness_seconds=3_600,
    )
    joined = replace(log, join=join)
    assert TableDefinition.from_json(joined.to_json()) == joined
