"""The price of a run that publishes: calls of Glue, lists in S3 and statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pytest

from prism_assets.objectstore.stores import Stores
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.test_catalog_idle import LATER, NIGHT, NOON, recorded, tables_at_rest
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.world import World


@dataclass
class Cost:
    """Counts of one run."""

    calls: Counter[str] = field(default_factory=Counter)
    lists: int = 0
    statements: int = 0


@contextmanager
def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cost]:
    """Counts the calls, lists and statements of a block."""
    cost, glue, put = Cost(), recorded(world), Stores.put

    def noted(stores: Stores, *arguments: Any) -> None:
        cost.lists += 1
        put(stores, *arguments)

    with monkeypatch.context() as patched, counted_statements() as statements:
        patched.setattr(Stores, "put", noted)
        yield cost
    cost.calls = Counter(glue.calls)
    cost.statements = sum(not one.startswith("BEGIN") for one in statements)


def test_the_days_of_twelve_tables_that_end_cost_two_calls_and_one_list_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables_at_rest(world, 12)
    with counted(world, monkeypatch) as cost:
        report = world.catalog(NIGHT)
    assert [len(item.published) for item in report.tables] == [1] * 12
    assert cost.calls == {"get_tables": 1, "batch_update_partition": 12, "batch_get_partition": 12}
    assert cost.lists == 12


def test_the_first_days_of_two_tables_cost_two_calls_and_no_list_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables_at_rest(world, 2)
    for name in ("t0", "t1"):
        world.drop(some_rows(2, utc(NIGHT)), stream=name)
    world.stream(LATER)
    with counted(world, monkeypatch) as cost:
        report = world.catalog(LATER)
    assert [len(item.published) for item in report.tables] == [1, 1]
    assert cost.calls == {"get_tables": 1, "batch_create_partition": 2, "batch_get_partition": 2}
    assert cost.lists == 0


def many_days(world: World, count: int) -> list[date]:
    """A table with an object in each of so many days, all in the past."""
    days = [date(2026, 2, 28) - timedelta(days=back) for back in range(count)]
    world.apply(a_table())
    world.drop([row for day in days for row in some_rows(1, utc(f"{day}T12:00"))])
    world.stream(NOON)
    return days


def test_the_days_of_one_table_are_published_by_as_few_calls_as_one_day(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = many_days(world, 20)
    with counted(world, monkeypatch) as cost:
        world.catalog(NOON)
    assert cost.lists == len(days)
    assert cost.calls["batch_create_partition"] == 1
    assert cost.calls["batch_get_partition"] <= 2
    assert len(world.ids()) == len(days)


def test_a_table_with_work_that_somebody_changed_in_glue_is_put_right_by_the_same_run(world: World) -> None:
    tables_at_rest(world, 2)
    glue = recorded(world)
    (table, *_) = world.context.choose_tables(["log.t1"])
    database = world.context.publisher.catalog.database_name(table)  # type: ignore[attr-defined]
    glue.delete_table(DatabaseName=database, Name="t1")
    first, second = world.catalog(NIGHT).tables
    assert (first.defined, second.defined) == (None, "created")
    assert len(world.ids("log.t1")) == 2
