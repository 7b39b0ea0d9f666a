"""A task of a repair that outlives its driver, while others repair the same object."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prism_assets import failpoints
from prism_assets.domain.work.repair import RepairResult
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table
from prism_assets_tests.stages.engines import ForgottenEngine, another_worker, in_background
from prism_assets_tests.stages.test_repair import (
    AFTER,
    DAY,
    as_of_another_version,
    everything,
    lengths,
    small_keys,
    some_objects,
)
from prism_assets_tests.world import World

Late = Callable[[Callable[[], None]], RepairResult]


@pytest.fixture
def late(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Late:
    """Runs a repair whose driver dies. One task is left, paused between its comparison and its write."""
    gate = tmp_path / "gate"

    def run(meanwhile: Callable[[], None]) -> RepairResult:
        engine = ForgottenEngine(world.context.engine)
        assert run_repair(another_worker(world, engine).context).irreparable[0].transient
        gate.touch()
        monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"repair.before_put=1*pause({gate})"))
        done: list[RepairResult] = []
        task = in_background(lambda: done.extend(engine.go_on()))
        _wait_for(gate.with_suffix(".reached"))
        meanwhile()
        gate.unlink()
        task.join()
        (result,) = done
        return result

    return run


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, "the task never came to its write"
        time.sleep(0.01)


def lose(world: World) -> None:
    world.context.stores.delete("lake", small_keys(world))


def damage(world: World) -> None:
    world.context.stores.put("lake", small_keys(world)[0], b"torn")


@pytest.mark.parametrize("harm", [lose, damage])
def test_a_late_task_does_not_write_over_what_another_repair_has_published(
    world: World, late: Late, harm: Callable[[World], None]
) -> None:
    world.apply(a_table())
    ids = some_objects(world, count=1)
    harm(world)

    def repair_by_another_version() -> None:
        run_repair(world.context)
        as_of_another_version(world)
        world.catalog(AFTER)

    result = late(repair_by_another_version)
    assert result.failure is None
    assert [item.content_length for item in result.objects] == lengths(world)
    assert [len(everything(world)[key]) for key in small_keys(world)] == lengths(world)
    assert [item.content_length for item in world.partition(DAY).objects] == lengths(world)
    assert world.ids() == ids


def test_an_object_that_others_are_still_at_is_left_to_the_next_repair(world: World, late: Late) -> None:
    world.apply(a_table())
    some_objects(world, count=1)
    key = small_keys(world)[0]
    before = everything(world)
    damage(world)
    result = late(lambda: world.context.stores.put("lake", key, b"torn otherwise"))
    assert result.failure is not None
    assert result.failure.transient
    assert "another worker was at it meanwhile, and now it is no readable Parquet object" in result.failure.message
    assert world.context.stores.get("lake", key) == b"torn otherwise"
    run_repair(world.context)
    assert everything(world) == before


def test_a_damaged_object_that_is_deleted_meanwhile_is_left_to_the_next_repair(world: World, late: Late) -> None:
    world.apply(a_table())
    some_objects(world, count=1)
    damage(world)
    result = late(lambda: lose(world))
    assert result.failure is not None
    assert result.failure.transient
    assert small_keys(world) == []
    run_repair(world.context)
    assert [len(everything(world)[key]) for key in small_keys(world)] == lengths(world)


def test_a_late_task_of_a_closed_day_writes_what_nobody_is_sent_to(world: World, late: Late) -> None:
    world.apply(a_table())
    ids = some_objects(world, count=1)
    world.catalog(AFTER)
    lose(world)

    def repair_and_publish() -> None:
        run_repair(world.context)
        world.catalog(AFTER)

    result = late(repair_and_publish)
    assert result.failure is None
    assert [key.rpartition("-")[2] for key in small_keys(world)] == ["r1.parquet", "r2.parquet"]
    assert [item.url.rpartition("-")[2] for item in world.partition(DAY).objects] == ["r2.parquet"]
    assert world.ids() == ids
    assert not world.catalog(AFTER).changed
