"""Random walks of erasures, renames, widenings, rebuilds, repairs, garbage collections and Iceberg, by fixed seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest

from prism_assets_tests.flow.random_walk import RandomWalk
from prism_assets_tests.flow.record_walks import RecordWalk
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.flow.walks import Row, Walk
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.reliability import Figures
from prism_assets_tests.requests import a_join_table
from prism_assets_tests.world import World

SHORT, LONG = ((5,), 20), (range(100), 60)


Worlds = Callable[[], AbstractContextManager[World]]


@pytest.fixture
def worlds(services: Mapping[str, str], database_url: str, tmp_path: Path) -> Worlds:
    """New worlds, one after another."""
    numbers = count()

    def new_world() -> AbstractContextManager[World]:
        root = tmp_path / str(next(numbers))
        root.mkdir()
        return a_world(services, database_url, root, gc_max_fraction=1.0, quarantine_days=36_500)

    return new_world


def play(worlds: Worlds, start: Callable[[World, int], RandomWalk], figures: Figures, *, long: bool) -> set[str]:
    """Plays a walk for each seed; returns the steps that were taken."""
    seeds, steps = LONG if long else SHORT
    done: Counter[str] = Counter()
    for seed in seeds:
        with worlds() as world:
            walk = start(world, seed)
            walk.play(steps)
            done += walk.done
    figures.note("State machine", runs=len(seeds), steps=done.total())
    return {step for step, taken in done.items() if taken}


def test_readers_see_after_every_step_of_a_walk_what_the_model_has(
    worlds: Worlds, long: bool, figures: Figures
) -> None:
    assert play(worlds, Walk, figures, long=long) >= {"a_day_is_rebuilt", "an_object_is_lost_and_repaired"}


def test_readers_of_a_join_table_see_after_every_step_of_a_walk_what_its_model_makes_of_the_log(
    worlds: Worlds, long: bool, figures: Figures
) -> None:
    def start(world: World, seed: int) -> RecordWalk:
        world.apply(a_join_table(more="iceberg: true\n"))
        return RecordWalk(world, seed)

    assert play(worlds, start, figures, long=long) >= {"a_key_is_erased", "records_are_rebuilt"}


class ForgetfulWalk(Walk):
    """Its model knows of no erasure."""

    def _erase(self, where: str, matches: Callable[[Row], bool]) -> None:
        super()._erase(where, matches)
        self.erased.clear()


def test_a_walk_finds_rows_that_are_gone(services: Mapping[str, str], database_url: str, tmp_path: Path) -> None:
    with a_world(services, database_url, tmp_path) as world:
        walk = ForgetfulWalk(world, 0)
        walk.take(walk.arrive)
        walk.take(walk.a_row_is_erased)
        with pytest.raises(AssertionError, match="rows are seen no more"):
            walk.take(walk.days_close_early)
