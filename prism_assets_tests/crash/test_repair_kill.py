"""kill -9 at every failpoint of a repair of objects with another length; the next repair completes the work."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table
from prism_assets_tests.crash.processes import run
from prism_assets_tests.stages.test_repair import AFTER, DAY, as_of_another_version, lengths, small_keys, some_objects
from prism_assets_tests.world import World

COMMAND = ("repair",)
POINTS = (
    "repair.after_plan",
    "repair.before_put",
    "repair.after_put",
    "repair.before_commit",
    "repair.in_commit",
    "repair.after_commit",
)


@pytest.fixture
def damaged(world: World) -> World:
    """A closed day, published by another version, with two of three objects missing."""
    world.apply(a_table())
    some_objects(world)
    as_of_another_version(world)
    world.catalog(AFTER)
    world.context.stores.delete("lake", small_keys(world)[:2])
    return world


def check(world: World) -> None:
    """Checks that each row is visible once, that the manifest has the right lengths, and that nothing needs repair."""
    world.catalog(AFTER)
    assert len(set(world.ids())) == len(world.ids()) == 12
    found = {item.key: item.content_length for item in world.context.stores.list("lake", "")}
    assert [found[key] for key in small_keys(world)] == lengths(world)
    assert [item.content_length for item in world.partition(DAY).objects] == lengths(world)
    report = run_repair(world.context, deep=True)
    assert (report.checked, report.missing, report.damaged) == (3, 0, 0)
    assert not world.catalog(AFTER).changed


def test_a_repair_reaches_every_failpoint_of_the_list(damaged: World, tmp_path: Path) -> None:
    log = tmp_path / "points"
    status, output = run(damaged, *COMMAND, PRISM_FAILPOINTS_LOG=str(log))
    assert status == 0, output
    assert set(log.read_text().split()) == set(POINTS)
    check(damaged)


@pytest.mark.parametrize("point", POINTS)
def test_a_repair_is_ended_by_the_next_after_a_kill_at(damaged: World, point: str) -> None:
    status, output = run(damaged, *COMMAND, PRISM_FAILPOINTS=f"{point}=kill9")
    assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
    status, output = run(damaged, *COMMAND)
    assert status == 0, output
    check(damaged)
