"""kill -9 at every failpoint of a repair of objects with another length; the next repair completes the work.

Objects of an open day are written in place, and those of a closed day under new keys.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table
from prism_assets_tests.crash.processes import run
from prism_assets_tests.stages.test_repair import (
    AFTER,
    DAY,
    NOON,
    as_of_another_version,
    lengths,
    small_keys,
    some_objects,
)
from prism_assets_tests.world import World

COMMAND = ("repair",)
IN_PLACE = (
    "repair.after_plan",
    "repair.before_put",
    "repair.after_put",
    "repair.before_commit",
    "repair.in_commit",
    "repair.after_commit",
)
POINTS = {"open": IN_PLACE, "closed": (*IN_PLACE, "repair.after_begin", "rewrite.in_commit")}


def damage(world: World, day: str) -> None:
    """A published day of another version, with two of three objects missing."""
    world.apply(a_table())
    some_objects(world)
    as_of_another_version(world)
    world.catalog(NOON if day == "open" else AFTER)
    world.context.stores.delete("lake", small_keys(world)[:2])


def check(world: World) -> None:
    """Checks that each row is visible once, that the manifest has the right lengths, and that nothing needs repair."""
    world.catalog(AFTER)
    assert len(set(world.ids())) == len(world.ids()) == 12
    objects = world.partition(DAY).objects
    found = {f"s3://lake/{item.key}": item.content_length for item in world.context.stores.list("lake", "")}
    assert [found[item.url] for item in objects] == [item.content_length for item in objects] == lengths(world)
    report = run_repair(world.context, deep=True)
    assert (report.checked, report.missing, report.damaged) == (3, 0, 0)
    assert not world.catalog(AFTER).changed


@pytest.mark.parametrize("day", POINTS)
def test_a_repair_reaches_every_failpoint_of_the_list(world: World, tmp_path: Path, day: str) -> None:
    damage(world, day)
    log = tmp_path / "points"
    status, output = run(world, *COMMAND, PRISM_FAILPOINTS_LOG=str(log))
    assert status == 0, output
    assert set(log.read_text().split()) == set(POINTS[day])
    check(world)


@pytest.mark.parametrize(("day", "point"), [(day, point) for day, points in POINTS.items() for point in points])
def test_a_repair_is_ended_by_the_next_after_a_kill_at(world: World, day: str, point: str) -> None:
    damage(world, day)
    status, output = run(world, *COMMAND, PRISM_FAILPOINTS=f"{point}=kill9")
    assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
    status, output = run(world, *COMMAND)
    assert status == 0, output
    check(world)
