"""Figures for people count the rows that readers see. Erased rows are shown beside them and not included."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from prism_assets.defs.assets.figures import read_figures, table_ids
from prism_assets.metadata.days import retention
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.test_erase import NAME, TABLE, arrive, erase, switched, users
from prism_assets_tests.world import World

DAY = date(2026, 3, 1)
AFTER = "2026-03-02T02:00"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    with a_world(services, database_url, tmp_path) as made:
        yield made


def row_count(world: World) -> int:
    """Returns the figures of the day that Dagster plots."""
    ids = table_ids(world.context, [NAME])
    (table_id,) = ids
    found: int = read_figures(world.context, ids, [(table_id, DAY)])[NAME, DAY]["dagster/partition_row_count"]
    return found


def would_expire(world: World) -> int:
    (table,) = world.context.choose_tables([NAME])
    with world.context.database.begin() as connection:
        return retention.count_older(connection, table.table_id, date(2026, 3, 2)).rows


def test_of_a_merged_day_erased_rows_are_told_beside_those_that_readers_see(world: World) -> None:
    switched(world)
    assert world.status("2026-03-01", AFTER).rows == 352
    erase(world, rows=16)
    world.catalog(AFTER)
    status = world.status("2026-03-01", AFTER)
    assert (status.rows, status.rows_erased) == (len(users(world)), 16)
    assert row_count(world) == would_expire(world) == len(users(world))


def test_of_a_closed_day_as_well(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    world.catalog(AFTER)
    erase(world, rows=10)
    status = world.status("2026-03-01", AFTER)
    assert (status.rows, status.rows_erased) == (20, 10)
    assert row_count(world) == would_expire(world) == 20
