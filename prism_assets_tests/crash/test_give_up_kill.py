"""kill -9 while objects are given up, and while objects of a dead batch are retried."""

from __future__ import annotations

import signal
import time

import pytest

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.crash.processes import run
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
STREAM = ("stream", "--now", f"{NOON}:00Z")
ONE_ATTEMPT = {"PRISM_MAX_ATTEMPTS": "1"}


@pytest.fixture
def vanished(world: World) -> World:
    """An object missing at its read, beside an existing one."""
    world.apply(a_table(merge="{interval: 0}"))
    world.drop(some_rows(2, utc(NOON)))
    key = world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    (world.root / "buckets" / "staging" / key).unlink()
    return world


def unremoved(world: World) -> int:
    with world.context.database.begin() as connection:
        statement = "SELECT count(*) FROM prism_abandoned_uploads WHERE NOT removed"
        return int(connection.exec_driver_sql(statement).scalar_one())


@pytest.mark.parametrize("point", ["stream.after_commit", "stream.after_remove"])
def test_what_a_given_up_object_left_is_removed_by_the_next_run_after_a_kill_at(vanished: World, point: str) -> None:
    status, output = run(vanished, *STREAM, PRISM_FAILPOINTS=f"{point}=kill9", **ONE_ATTEMPT)
    assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
    assert unremoved(vanished) == 1
    status, output = run(vanished, *STREAM, **ONE_ATTEMPT)
    assert status == 0, output
    assert unremoved(vanished) == 0
    vanished.catalog(NOON)
    assert len(vanished.ids()) == 2


def test_workers_killed_over_an_object_before_and_after_the_engine_was_seen_at_work(world: World) -> None:
    world.apply(a_table(merge="{interval: 0}"))
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    for point in ("stream.after_start", "stream.after_probe"):
        status, output = run(world, *STREAM, PRISM_FAILPOINTS=f"{point}=kill9")
        assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
        time.sleep(1.1)  # the lease
    status, output = run(world, *STREAM)
    assert status == 0, output
    world.catalog(NOON)
    assert len(world.ids()) == 2
