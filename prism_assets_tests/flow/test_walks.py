"""Random walks of erasures, renames, widenings, rebuilds, repairs, garbage collections and Iceberg, by fixed seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from prism_assets_tests.flow.record_walks import RecordWalk
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.flow.walks import Row, Walk
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.reliability import Figures
from prism_assets_tests.requests import a_join_table

SHORT, LONG = ((1, 9), 20), (range(100), 60)


def test_readers_see_after_every_step_of_a_walk_what_the_model_has(
    services: Mapping[str, str], database_url: str, tmp_path: Path, long: bool, figures: Figures
) -> None:
    seeds, steps = LONG if long else SHORT
    done: Counter[str] = Counter()
    for seed in seeds:
        root = tmp_path / str(seed)
        root.mkdir()
        with a_world(services, database_url, root, gc_max_fraction=1.0, quarantine_days=36_500) as world:
            walk = Walk(world, seed)
            walk.play(steps)
            done += walk.done
    figures.note("State machine", runs=len(seeds), steps=done.total())
    assert {step for step, count in done.items() if count} >= {"a_day_is_rebuilt", "an_object_is_lost_and_repaired"}


def test_readers_of_a_join_table_see_after_every_step_of_a_walk_what_its_model_makes_of_the_log(
    services: Mapping[str, str], database_url: str, tmp_path: Path, long: bool, figures: Figures
) -> None:
    seeds, steps = LONG if long else SHORT
    done: Counter[str] = Counter()
    for seed in seeds:
        root = tmp_path / str(seed)
        root.mkdir()
        with a_world(services, database_url, root, gc_max_fraction=1.0, quarantine_days=36_500) as world:
            world.apply(a_join_table(more="iceberg: true\n"))
            walk = RecordWalk(world, seed)
            walk.play(steps)
            done += walk.done
    figures.note("State machine", runs=len(seeds), steps=done.total())
    assert {step for step, count in done.items() if count} >= {"a_key_is_erased", "records_are_rebuilt"}


class ForgetfulWalk(Walk):
    """Its model knows of no erasure."""

    def _erase(self, where: str, matches: Callable[[Row], bool]) -> None:
        super()._erase(where, matches)
        self.erased.clear()


def test_a_walk_finds_rows_that_are_gone(services: Mapping[str, str], database_url: str, tmp_path: Path) -> None:
    with a_world(services, database_url, tmp_path) as world:
        walk = ForgetfulWalk(world, 0)
        walk.take(walk.arrive)
        with pytest.raises(AssertionError, match="rows are seen no more"):
            walk.take(walk.a_row_is_erased)
