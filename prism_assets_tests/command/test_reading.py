"""Reads through the catalog need no database, and work despite a wrong or missing one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.command.test_errors import fails, in_one_line

NOON = "2026-03-01T12:00"
READING = [("files", "log.events"), ("query", "SELECT count(*) AS rows FROM log.events")]


@pytest.fixture
def readable(prism: Prism) -> Prism:
    """A table with three visible rows."""
    prism.world.apply(a_table())
    prism.world.drop(some_rows(3, utc(NOON)))
    prism.ok("run", "--now", NOON)
    return prism


@pytest.mark.parametrize("words", READING)
@pytest.mark.parametrize(
    "settings",
    [
        {"database_url": None},
        {"database_url": None, "bucket": None, "spark_remote": None},
        {"database_url": "postgresql://u:canary@127.0.0.1:1/none"},
        {"database_url": "nonsense", "lease_seconds": "many"},
    ],
)
def test_reading_needs_no_database(readable: Prism, words: tuple[str, ...], settings: dict[str, str | None]) -> None:
    before = readable.ok(*words).out
    readable.set(**settings)
    assert readable.ok(*words).out == before


@pytest.mark.parametrize("words", READING)
def test_addresses_that_are_none_are_told_as_settings(readable: Prism, words: tuple[str, ...]) -> None:
    readable.set(glue_endpoint="nonsense", s3_endpoint="ftp://x")
    fails(readable(*words), 2, "PRISM_GLUE_ENDPOINT: must look like http://host:port", "PRISM_S3_ENDPOINT: must")


def test_numbers_that_are_not_finite_are_null_in_json_as_it_has_no_form_for_them(prism: Prism) -> None:
    sql = "SELECT 1 / 0 AS a, [0.5::double, 'nan'::double] AS b, {'x': -1 / 0} AS c, 'NaN' AS d, 2.5::double AS e"
    said = prism.ok("query", sql, "--json").out
    (row,) = json.loads(said, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert row == {"a": None, "b": [0.5, None], "c": {"x": None}, "d": "NaN", "e": 2.5}
    assert "inf" in prism.ok("query", sql).out, "a terminal shows what it is"


def test_keys_of_maps_are_texts_in_json(prism: Prism) -> None:
    (row,) = json.loads(prism.ok("query", "SELECT MAP {DATE '2026-03-01': [MAP {1: 'x'}]} AS a", "--json").out)
    assert row == {"a": {"2026-03-01": [{"1": "x"}]}}


def the_object(prism: Prism) -> Path:
    (partition,) = prism.ok("files", "log.events", "--json").json["partitions"]
    return prism.world.root / "buckets" / str(partition["objects"][0]["url"]).removeprefix("s3://")


def test_an_object_that_a_manifest_names_and_that_is_gone(readable: Prism) -> None:
    readable.ok("catalog", "--now", "2026-03-02T00:10")
    path = the_object(readable)
    path.unlink()
    done = readable("query", "SELECT count(id) FROM log.events")
    fails(done, 1, path.name, "does not exist")
    in_one_line(done)


def test_an_object_that_is_no_parquet_under_a_query(readable: Prism) -> None:
    path = the_object(readable)
    path.write_bytes(b"rubbish" * 100)
    done = readable("query", "SELECT count(id) FROM log.events")
    fails(done, 1, path.name, "is no sound Parquet object; `prism repair --deep`")
    in_one_line(done)
