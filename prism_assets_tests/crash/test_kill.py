"""kill -9 of commands at random moments; then the pipeline runs until idle, and every row is counted."""

from __future__ import annotations

import random
import time

import pytest

from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.crash.processes import run, start
from prism_assets_tests.world import World

NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"


def fill(world: World, objects: int = 3) -> list[int]:
    """Drops objects with some broken lines. Returns the ids to be visible at the end."""
    world.apply(a_table(merge="{interval: 0}"))
    ids = []
    for _ in range(objects):
        rows = some_rows(20, utc("2026-03-01T11:00"))
        ids += [row["id"] for row in rows]
        world.drop([], body=as_lines(rows) + b"broken\n")
    return ids


def check(world: World, ids: list[int]) -> None:
    """Every row once, every broken line in quarantine, every object accounted for, the partition switched."""
    assert world.ids() == ids
    with world.context.database.begin() as connection:
        ledger = connection.exec_driver_sql(
            "SELECT count(*), sum(lines_in), sum(rows_out), sum(rows_quarantined) FROM prism_staging_objects "
            "WHERE state = 'done'"
        ).one()
        running = connection.exec_driver_sql(
            "SELECT (SELECT count(*) FROM prism_stream_batches WHERE state = 'running') "
            "+ (SELECT count(*) FROM prism_merge_jobs WHERE ongoing_mark > 0)"
        ).scalar_one()
    objects = world.dropped["events"]
    assert tuple(map(int, ledger)) == (objects, len(ids) + objects, len(ids), objects)
    assert running == 0


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_after_kills_at_random_moments(world: World, seed: int) -> None:
    rng = random.Random(seed)
    ids = fill(world, objects=6)
    for command, now in (("stream", NOON), ("catalog", NOON), ("catalog", AFTER), ("merge", AFTER), ("catalog", AFTER)):
        if command == "stream":
            world.discover(now)
        process = start(world, command, "--now", f"{now}:00Z", "--force")
        time.sleep(rng.uniform(0.05, 0.6))
        process.kill()
        process.finish()
    with world.context.database.begin() as connection:  # nobody wants to wait for calls of killed processes here
        connection.exec_driver_sql("UPDATE prism_publication_intents SET expire_time = start_time")
    for now in (NOON, AFTER):
        status, output = run(world, "run", "--until-idle", "--now", f"{now}:00Z", "--force")
        assert status == 0, output
    check(world, ids)
    assert world.status("2026-03-01", AFTER).state == "switched"
