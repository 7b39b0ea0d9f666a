"""Random histories: after any order of folds, readers see the model's result of the accepted changes.

Null controls break one rule each, and must differ; otherwise these histories would prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from prism_assets.domain.records.joins import DELETE, SETTLE
from prism_assets_tests.kernels.builders import Lake
from prism_assets_tests.kernels.records.builders import WINDOW
from prism_assets_tests.kernels.records.histories import History, a_history, clock_alone, now_alone

AT_ONCE = 20
PORTIONS = range(1)
MORE_PORTIONS = range(len(PORTIONS), 150)


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[Lake]:
    """Separate lakes, one at a time."""

    def made() -> Iterator[Lake]:
        while True:
            with TemporaryDirectory(dir=tmp_path) as folder:
                yield Lake(Path(folder))

    return made()


def seeds_of(portion: int) -> range:
    return range(portion * AT_ONCE, (portion + 1) * AT_ONCE)


def differing(histories: Iterator[History]) -> list[int]:
    """Returns the seeds of histories that differ from the model."""
    found = []
    for history in histories:
        history.run()
        if history.differs:
            found.append(history.seed)
    return found


@pytest.mark.parametrize("portion", PORTIONS)
def test_readers_see_what_the_model_says(lakes: Iterator[Lake], portion: int) -> None:
    assert differing(a_history(next(lakes), seed) for seed in seeds_of(portion)) == []


@pytest.mark.parametrize("portion", MORE_PORTIONS)
def test_readers_see_what_the_model_says_in_thousands_of_histories(
    lakes: Iterator[Lake], portion: int, long: bool
) -> None:
    if not long:
        pytest.skip("thousands of histories: with --long")
    assert differing(a_history(next(lakes), seed) for seed in seeds_of(portion)) == []


# Null controls. These seeds are a few of many with a difference.


# Null controls. Their seeds are few of many that come out otherwise.


def test_tombstones_are_needed(lakes: Iterator[Lake]) -> None:
    def forgetful() -> Iterator[History]:
        for seed in range(8):
            history = a_history(next(lakes), seed)
            history.table.forget_hidden = True
            yield history

    assert differing(forgetful())


def test_windows_are_needed(lakes: Iterator[Lake]) -> None:
    def endless() -> Iterator[History]:
        for seed in range(4):
            history = a_history(next(lakes), seed, window_seconds=WINDOW)
            assert history.table.table.join is not None
            history.folds_with(replace(history.table.table.join, window_seconds=None, after=SETTLE))
            yield history

    assert differing(endless())


@pytest.mark.parametrize("after", [SETTLE, DELETE])
def test_nothing_settles_that_a_claimed_object_may_still_meet(lakes: Iterator[Lake], after: str) -> None:
    """An early clock claims an object, and advances before the object is folded."""
    assert differing(a_history(next(lakes), seed, rule=clock_alone, after=after, **SHORT) for seed in (25, 27))


@pytest.mark.parametrize("after", [SETTLE, DELETE])
def test_time_does_not_go_on_while_discovery_is_down(lakes: Iterator[Lake], after: str) -> None:
    """The earlier clock accepts changes that wait for discovery, and none meets a settled record."""
    assert differing(a_history(next(lakes), seed, rule=now_alone, after=after, **SHORT) for seed in NOW_ALONE)


SHORT: dict[str, Any] = {"window_seconds": WINDOW}
NOW_ALONE = (1, 3, 4, 7)
