"""The traffic of benchmarks: even over the tables, with ids that distinguish lost from doubled rows."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bench.readable import compared
from bench.traffic import Traffic, body, noon_zone, object_key, write_tables
from prism_assets.stages.apply.files import parse_table_files


def test_each_table_gets_the_same_number_of_objects() -> None:
    traffic = Traffic(tables=3, rate=2, minutes=2, lines=10)
    expected = traffic.expected()
    assert traffic.objects == 12
    assert [len(numbers) for numbers in expected.values()] == [4, 4, 4]
    assert all(object_key(traffic, number).startswith(table) for table, found in expected.items() for number in found)


def test_the_ids_of_two_objects_differ() -> None:
    ids = [json.loads(line)["id"] for number in (4, 5) for line in gzip.decompress(body(number, 10)).splitlines()]
    assert ids == list(range(40, 60))


@pytest.mark.parametrize("hour", [0, 3, 11, 12, 23])
def test_no_day_ends_during_a_soak(hour: int) -> None:
    now = datetime(2026, 3, 1, hour, 59, tzinfo=timezone.utc)
    assert now.astimezone(ZoneInfo(noon_zone(now))).hour == 11


def test_the_table_files_can_be_read(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", Traffic(tables=2, rate=1, minutes=1, lines=1), 300)
    assert [str(table.name) for table in parse_table_files(tmp_path / "tables")[0]] == ["soak.t000", "soak.t001"]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({1: (10, 10), 2: (10, 10)}, ""),
        ({1: (10, 10)}, "10 rows lost"),
        ({1: (10, 10), 2: (9, 9)}, "1 rows lost"),
        ({1: (20, 10), 2: (10, 10)}, "10 rows doubled"),
        ({1: (10, 9), 2: (10, 10)}, "1 rows lost, 1 rows doubled"),
        ({1: (10, 10), 2: (10, 10), 3: (1, 1)}, "1 rows that nobody wrote"),
    ],
)
def test_what_was_read_is_compared_with_what_arrived(found: dict[int, tuple[int, int]], sentence: str) -> None:
    assert compared({1: 10, 2: 10}, found) == sentence
