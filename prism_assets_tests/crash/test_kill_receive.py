"""kill -9 while messages are received: each object is registered once, and no message is lost before."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.crash.processes import run, start
from prism_assets_tests.notifications import QueueOfTest, a_body, a_record
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
DISCOVER = ("discover", "--now", f"{NOON}:00Z", "--force", "--json")
POINTS = ("receive.before_commit", "receive.in_commit", "receive.after_commit", "receive.after_delete")


@pytest.fixture
def settings(world: World, queue: QueueOfTest) -> dict[str, str]:
    """The queue's settings for processes of the world with the table log.events."""
    world.apply(a_table(merge="{interval: 0}"))
    return {"PRISM_SQS_QUEUE_URLS": queue.url, "PRISM_SQS_ENDPOINT": queue.endpoint}


def fill(world: World, queue: QueueOfTest, objects: int = 12) -> list[tuple[str, str]]:
    """Sends messages about objects missing in the bucket, so no listing can find them. Returns their rows."""
    keys = [f"events/{number:03}.gz" for number in range(objects)]
    queue.send(*(a_body(a_record(key, eTag=key[-6:-3])) for key in keys), "broken", a_body(a_record("none/1.gz")))
    return [(key, f'"{key[-6:-3]}"') for key in keys]


def show_again(queue: QueueOfTest) -> None:
    """Waits until messages hidden for a second are visible. Hides later ones for long, because a slow machine would
    receive its own messages again and again.
    """
    time.sleep(1.1)
    queue.hide_for(600)


def registered(world: World) -> list[tuple[str, str]]:
    with world.context.database.begin() as connection:
        statement = "SELECT object_key, etag FROM prism_staging_objects ORDER BY prism_staging_object_id"
        return [(row[0], row[1]) for row in connection.exec_driver_sql(statement)]


def everything(world: World) -> list[tuple[object, ...]]:
    """Returns all rows that receiving may change, with ids and times."""
    with world.context.database.begin() as connection:
        return [
            tuple(row)
            for name in ("prism_staging_objects", "prism_unknown_staging_objects")
            for row in connection.exec_driver_sql(f"SELECT * FROM {name} ORDER BY 1")
        ]


def test_a_dry_run_reaches_every_failpoint(
    world: World, queue: QueueOfTest, settings: dict[str, str], tmp_path: Path
) -> None:
    expected = fill(world, queue)
    log = tmp_path / "points"
    status, output = run(world, *DISCOVER, PRISM_FAILPOINTS_LOG=str(log), **settings)
    assert status == 0, output
    assert {point for point in log.read_text().split() if point.startswith("receive.")} == set(POINTS)
    assert (registered(world), queue.count()) == (expected, 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_loses_no_message_and_registers_nothing_twice(
    world: World, queue: QueueOfTest, settings: dict[str, str], point: str
) -> None:
    expected = fill(world, queue)
    queue.hide_for(1)
    status, output = run(world, *DISCOVER, PRISM_FAILPOINTS=f"{point}=kill9", **settings)
    assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
    committed = point in ("receive.after_commit", "receive.after_delete")
    before = everything(world)
    assert registered(world) == (expected if committed else [])
    assert queue.count() == (0 if point == "receive.after_delete" else len(expected) + 2)
    show_again(queue)
    status, output = run(world, *DISCOVER, **settings)
    assert status == 0, output
    assert (registered(world), queue.count()) == (expected, 0)
    if committed:
        assert everything(world) == before


@pytest.mark.parametrize("seed", range(2))
def test_two_receivers_killed_at_random_moments_register_each_object_once(
    world: World, queue: QueueOfTest, settings: dict[str, str], seed: int
) -> None:
    rng = random.Random(seed)
    expected = fill(world, queue, objects=250)
    queue.hide_for(1)
    both = [start(world, *DISCOVER, **settings) for _ in range(2)]
    time.sleep(rng.uniform(0.05, 0.6))
    for process in both:
        process.kill()
        process.finish()
    show_again(queue)
    status, output = run(world, *DISCOVER, **settings)
    assert status == 0, output
    assert (sorted(registered(world)), queue.count()) == (expected, 0)


def test_rows_of_received_objects_are_there_once_after_a_kill(
    world: World, queue: QueueOfTest, settings: dict[str, str]
) -> None:
    rows = some_rows(20, utc("2026-03-01T11:00"))
    queue.hide_for(1)
    queue.tell(world.drop(rows[:10]), world.drop(rows[10:]))
    whole = ("run", "--until-idle", "--now", f"{NOON}:00Z", "--force")
    status, output = run(world, *whole, PRISM_FAILPOINTS="receive.after_commit=kill9", **settings)
    assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
    show_again(queue)
    status, output = run(world, *whole, **settings)
    assert status == 0, output
    assert world.ids() == [row["id"] for row in rows]
    assert queue.count() == 0
