"""Rebuild of merged objects: with rows of several definitions, for readers, and on days of many objects."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.files.rewrites import RewriteKind
from prism_assets.metadata.rewrites import rebuilt_objects
from prism_assets.metadata.rewrites.rebuilds import Rebuild
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass, keys
from prism_assets_tests.stages.test_rebuild import (
    AFTER,
    LATER,
    NOON,
    a_switched_day,
    a_version,
    arrive,
    close,
    is_sound,
    marks,
    rebuilt,
    switch,
)
from prism_assets_tests.world import World


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def collected(world: World) -> None:
    """Deletes all merged small objects by garbage collection."""
    hours_pass(world, 100)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_merge_ranges SET update_time = '2026-01-01'")
    deleted(world)
    assert [key for key in keys(world) if "/live/" in key] == []


def test_rows_of_two_definitions_in_one_merged_object_are_rebuilt_when_their_small_objects_are_gone(
    world: World,
) -> None:
    world.apply(a_version(1))
    ids = arrive(world, "ab")
    world.apply(a_version(2))
    ids += arrive(world, "cd")
    world.catalog(NOON)
    switch(world)
    collected(world)
    done = rebuilt(world)
    assert done.totals is not None
    assert done.totals.objects == 2
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert rebuilt(world).totals is None
    assert is_sound(world)


def test_late_rows_of_the_definition_in_force_are_rebuilt_with_what_they_are_merged_with(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))
    ids += arrive(world, "x", now=LATER, start=NOON)
    world.merge(LATER, everything=True)
    world.catalog(LATER)
    collected(world)
    rebuilt(world)
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


@pytest.mark.parametrize("hours", [0, 5])
def test_readers_hold_what_a_rebuild_replaced_from_its_commit_on_however_long_it_took(world: World, hours: int) -> None:
    world.apply(a_version(1))
    arrive(world, "abc", "abc", "ab")
    close(world)
    world.merge(AFTER, everything=True)
    hours_pass(world, 100)
    old = {key for key in keys(world) if "/part-" in key}
    assert old
    world.apply(a_version(2))
    began = datetime.now(timezone.utc) - timedelta(hours=hours)
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=began).errors == ()
    deleted(world)
    assert old <= set(keys(world))


_MANY = """
SET LOCAL session_replication_role = replica;
DELETE FROM prism_merge_ranges;
INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, fingerprint,
    create_time, update_time, definition_version)
SELECT prism_partition_id, CASE WHEN n > 0 THEN (n - 1) * 2000 END, n * 2000, 1, 1, 0, now(), now(),
    CASE WHEN n > 0 THEN 1 END
FROM prism_partitions CROSS JOIN generate_series(0, 10) n;
INSERT INTO prism_rewrites (prism_table_id, prism_partition_id, kind, definition_version, state, worker)
SELECT prism_table_id, prism_partition_id, 'rebuild', 2, 'running', 'one' FROM prism_partitions;
INSERT INTO prism_rebuilt_objects (prism_rewrite_id, prism_staging_object_id, small_object_id, seen_rebuilds, missing,
    rows_filtered, rows_quarantined, quarantined)
SELECT prism_rewrite_id, n, n, 0, n BETWEEN 2500 AND 4000, 0, 0, '[]'
FROM prism_rewrites CROSS JOIN generate_series(1, 20000) n WHERE kind = 'rebuild';
ANALYZE prism_rebuilt_objects;
ANALYZE prism_merge_ranges;
SET LOCAL statement_timeout = '5s';
"""


def test_what_is_left_out_of_a_day_of_many_objects_is_found_at_once(world: World) -> None:
    """The query runs under the lock of the day."""
    a_switched_day(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(_MANY)
        number = connection.exec_driver_sql(
            "SELECT prism_rewrite_id FROM prism_rewrites WHERE kind = 'rebuild'"
        ).scalar_one()
        day = connection.exec_driver_sql("SELECT prism_partition_id FROM prism_partitions").scalar_one()
        rebuilt_objects.leave_out(
            connection,
            Rebuild(
                rewrite_id=number,
                kind=RewriteKind.REBUILD,
                table_id=1,
                partition_id=day,
                definition_version=2,
                erasure_id=0,
            ),
        )
        left = connection.exec_driver_sql(
            "SELECT min(small_object_id), max(small_object_id), count(*) FROM prism_rebuilt_objects WHERE left_out"
        ).one()
        assert tuple(left) == (2_001, 4_000, 2_000)
        connection.rollback()
