"""Runs that fail between any two steps: the next run leaves each row once, and no further work."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from prism_assets.domain.iceberg.snapshots import ACTIVE
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets_tests.builders import a_table
from prism_assets_tests.crash.sweep import points_in_sources
from prism_assets_tests.stages.iceberg.clients import a_stranger
from prism_assets_tests.stages.iceberg.days import (
    AFTER,
    NOON,
    TABLE,
    attempt,
    dirty_days,
    fails_at,
    is_sound,
    published,
    reasons,
    recorded,
    streamed,
)
from prism_assets_tests.world import World


def first(world: World) -> tuple[list[int], str]:
    world.apply(TABLE)
    return streamed(world), NOON


def append(world: World) -> tuple[list[int], str]:
    return published(world) + streamed(world), NOON


def replace(world: World) -> tuple[list[int], str]:
    ids = published(world)
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    return ids, AFTER


def restore(world: World) -> tuple[list[int], str]:
    ids = published(world)
    a_stranger(world, "delete")
    attempt(world)
    return ids, NOON


def register(world: World) -> tuple[list[int], str]:
    ids = published(world)
    a_stranger(world, "drop")
    return ids + streamed(world), NOON


CHANGES: Mapping[str, Callable[[World], tuple[list[int], str]]] = {
    change.__name__: change for change in (first, append, replace, restore, register)
}
STEPS = (
    "iceberg.after_load",
    "iceberg.after_manifests",
    "iceberg.before_commit",
    "iceberg.after_commit",
    "iceberg.after_readback",
    "iceberg.in_record",
    "iceberg.after_record",
)
HARDEST = ("iceberg.after_manifests", "iceberg.after_commit", "iceberg.in_record")
DEATHS = [
    *(("append", step) for step in STEPS),
    *((change, step) for change in CHANGES if change != "append" for step in HARDEST),
    ("first", "iceberg.after_begin"),
    ("first", "iceberg.after_first_metadata"),
]


@pytest.mark.parametrize(("change", "point"), DEATHS)
def test_after_a_death_each_row_is_there_once_and_nothing_is_left_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str, point: str
) -> None:
    ids, now = CHANGES[change](world)
    fails_at(monkeypatch, point)
    assert reasons(attempt(world, now)) == [f"failpoint {point}"]

    assert reasons(attempt(world, now)) == []

    assert is_sound(world, ids)
    assert (recorded(world).state, dirty_days(world)) == (ACTIVE, 0)
    assert not attempt(world, now).changed


def test_after_a_death_while_it_is_taken_out_of_the_catalog_a_table_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(world)
    world.apply(a_table(merge="{interval: 0}"))
    fails_at(monkeypatch, "iceberg.after_unregister")
    assert reasons(attempt(world)) == ["failpoint iceberg.after_unregister"]
    assert attempt(world).dropped
    with IcebergReader(world.settings) as reader:
        assert reader.catalog.list_tables(f"{world.settings.glue_database_prefix}log_iceberg") == []
    assert world.iceberg(NOON).tables == ()


def test_every_step_of_a_publication_is_among_them() -> None:
    steps = {point for point in points_in_sources() if point.startswith("iceberg.")}
    assert steps == {*(point for _, point in DEATHS), "iceberg.after_unregister"}
