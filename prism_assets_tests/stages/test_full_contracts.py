"""Evolving tables have a limit of columns: lines with ids as keys must not make a table too wide for services."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from prism_assets.domain.tables.drift import collecting_source
from prism_assets.stages.checks.intake import UNDEFINED_FIELDS
from prism_assets.stages.drift import read_drift
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.findings import says
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World

NOON, LATER = "2026-03-01T12:00", "2026-03-01T13:00"
FULL = (
    "log.events: it has 6 columns, and its contract adds none beyond 6 (most_columns): {} keys have no column. Collect "
    'keys that are alike in one, such as {{name: others, type: json, source: "/^user_/"}}, or raise most_columns'
)


def exploding(most: int) -> str:
    return a_table() + f"contract: {{new_fields: evolve, most_columns: {most}}}\n"


def with_ids(first: int, count: int) -> list[dict[str, Any]]:
    """Returns lines with one common key and one key of their own each."""
    rows = some_rows(count, utc(NOON), country="de")
    return [row | {f"user_{first + number}": number} for number, row in enumerate(rows)]


def names(world: World) -> list[str]:
    (table,) = world.context.choose_tables(None)
    return [column.name for column in table.columns]


def test_ids_as_keys_make_no_more_columns_than_the_contract_says_and_that_is_told_once(world: World) -> None:
    told: list[str] = []
    world = dataclasses.replace(world, context=dataclasses.replace(world.context, progress=told.append))
    world.apply(exploding(6))
    world.drop(with_ids(0, 10))
    assert world.stream(NOON).errors == ()
    assert len(names(world)) == 6
    assert "country" in names(world), "the key that most lines have comes first"
    assert f"stream: {FULL.format(7)}" in told
    told.clear()
    world.drop(with_ids(100, 10))
    assert world.stream(LATER).errors == ()
    assert len(names(world)) == 6
    assert not [line for line in told if "most_columns" in line]
    (status,) = read_status(world.context, now=utc(LATER))
    outcome = check(world, UNDEFINED_FIELDS, LATER)
    assert FULL.format(17) in map(str, status.findings)
    assert (f"log.events: {outcome.sentence}", outcome.passed) == (FULL.format(17), False)
    drift = read_drift(world.context, "log.events")
    assert (str(drift.full_contract), len(drift.fields)) == (FULL.format(17), 17)


def test_a_pattern_that_collects_them_ends_it(world: World) -> None:
    world.apply(exploding(6))
    world.drop(with_ids(0, 10))
    world.stream(NOON)
    collected = exploding(7).replace("merge:", '  - {name: others, type: json, source: "/^user_/"}\nmerge:')
    world.apply(collected)
    world.drop(with_ids(100, 3))
    world.stream(LATER)
    (status,) = read_status(world.context, now=utc(LATER))
    assert says(status.findings, "full_contract") == []
    world.catalog(LATER)
    assert world.query("SELECT count(others) FROM log.events") == [(3,)]


def test_a_greater_limit_has_fields_become_columns_again(world: World) -> None:
    world.apply(exploding(6))
    world.drop(with_ids(0, 10))
    world.stream(NOON)
    plan = world.apply(exploding(40))
    assert "contract of log.events: new fields evolve, 40 columns at most, misfits empty" in plan.lines
    world.stream(LATER)
    assert len(names(world)) == 2 + 1 + 10


def test_a_table_has_256_columns_at_most_where_its_file_says_nothing(world: World) -> None:
    world.apply(a_table() + "contract: {new_fields: evolve}\n")
    world.drop(with_ids(0, 300))
    world.stream(NOON)
    assert len(names(world)) == 256


@pytest.mark.parametrize(
    ("keys", "source"),
    [
        ([f"user_{number}" for number in range(9)], "/^user_/"),
        (["s-1f", "s-2a", "s-9", "other"], "/^s-/"),
        (["utm_source", "utm_medium", "utm_term"], None),
        (["a1", "a2"], None),
        (["x.1", "x.2", "x.3"], "/^x[.]/"),
        (["x*1", "x*2", "x*3"], None),
    ],
)
def test_keys_that_differ_in_a_number_alone_are_collected_by_what_they_have_in_common(
    keys: list[str], source: str | None
) -> None:
    assert collecting_source(keys) == source
