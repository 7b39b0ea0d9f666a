"""Event dates and column types of a table."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prism_assets.domain.table_file import parse_table_file
from prism_assets.domain.tables import Column, TableDefinition
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


@pytest.mark.parametrize(
    ("column", "glue"),
    [
        (Column(name="a", source="a", type="string", length=20), "varchar(20)"),
        (Column(name="a", source="a", type="json", length=65_535), "varchar(65535)"),
        (Column(name="a", source="a", type="decimal", precision=12, scale=4), "decimal(12,4)"),
        (Column(name="a", source="a", type="integer"), "int"),
        (Column(name="a", source="a", type="real"), "float"),
        (Column(name="a", source="a", type="bigint"), "bigint"),
        (Column(name="a", source="a", type="timestamp"), "timestamp"),
    ],
)
def test_column_types_have_their_hive_names(column: Column, glue: str) -> None:
    assert column.glue_type == glue


def test_a_column_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        in_zone("UTC").column("nothing")
