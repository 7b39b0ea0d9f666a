"""kill -9 at every failpoint and at random moments; then the pipeline runs until idle, and every row is counted."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.crash.life import AFTER, NOON
from prism_assets_tests.crash.processes import finish, run, start
from prism_assets_tests.world import World

LIFE = "prism_assets_tests.crash.life"
POINTS = (
    "discover.in_page",
    "discover.after_page",
    "discover.after_position",
    "stream.in_start",
    "stream.after_start",
    "convert.after_put",
    "convert.after_quarantine_put",
    "stream.after_convert",
    "stream.in_commit",
    "stream.after_insert",
    "stream.after_commit",
    "merge.in_claim",
    "merge.after_claim",
    "merge.before_put",
    "merge.after_put",
    "merge.before_commit",
    "merge.in_commit",
    "merge.after_commit",
    "catalog.after_lease",
    "catalog.in_switch",
    "catalog.after_switch",
    "catalog.in_mark",
    "catalog.after_mark",
    "catalog.in_close",
    "catalog.after_close",
    "catalog.after_begin",
    "catalog.before_call",
    "catalog.after_call",
    "catalog.after_define",
    "catalog.before_manifest",
    "catalog.after_manifest",
    "catalog.after_publish",
    "catalog.in_record",
    "catalog.after_advance",
    "catalog.in_settle",
    "catalog.after_settle",
)


def fill(world: World, objects: int = 3) -> list[int]:
    """Drops objects with some broken lines and returns the ids that must be visible in the end."""
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


def test_a_dry_run_reaches_every_failpoint_of_the_list(world: World, tmp_path: Path) -> None:
    ids = fill(world)
    log = tmp_path / "points"
    status, output = run(world, LIFE, PRISM_FAILPOINTS_LOG=str(log))
    assert status == 0, output
    assert set(log.read_text().split()) == set(POINTS)
    check(world, ids)


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_or_doubled_after_a_kill_at(world: World, point: str) -> None:
    ids = fill(world)
    status, output = run(world, LIFE, PRISM_FAILPOINTS=f"{point}=kill9")
    assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
    status, output = run(world, LIFE)
    assert status == 0, output
    check(world, ids)
    assert world.status("2026-03-01", AFTER).state == "switched"


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_after_kills_at_random_moments(world: World, seed: int) -> None:
    rng = random.Random(seed)
    ids = fill(world, objects=6)
    for command, now in (("stream", NOON), ("catalog", NOON), ("catalog", AFTER), ("merge", AFTER), ("catalog", AFTER)):
        if command == "stream":
            world.discover(now)
        process = start(world, "prism_assets.cli", command, "--now", f"{now}:00Z", "--force")
        time.sleep(rng.uniform(0.6, 1.6))
        process.kill()
        finish(process)
    status, output = run(world, LIFE)
    assert status == 0, output
    check(world, ids)
