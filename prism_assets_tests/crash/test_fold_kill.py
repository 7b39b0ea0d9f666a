"""kill -9 and errors at each step of a fold: readers see whole records before and after, and the next fold goes on."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from prism_assets_tests.crash.processes import run
from prism_assets_tests.requests import Requests, a_join_table, some_changes
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
POINTS = ("fold.in_begin", "fold.after_begin", "fold.after_execute", "fold.in_commit", "fold.after_commit")
FOLD = ("fold", "--now", f"{NOON}:00Z")


@pytest.fixture
def requests(world: World) -> Requests:
    """Records visible to readers, and unfolded changes."""
    world.apply(a_join_table())
    found = Requests(world)
    changes = some_changes(7, 60, NOON, requests=8, hours=3)
    found.arrive(changes[:30], NOON)
    found.show(NOON)
    found.arrive(changes[30:], NOON)
    return found


def test_a_fold_reaches_every_failpoint_of_the_list(requests: Requests, tmp_path: Path) -> None:
    log = tmp_path / "points"
    status, output = run(requests.world, *FOLD, PRISM_FAILPOINTS_LOG=str(log))
    assert status == 0, output
    assert [point for point in log.read_text().split() if point.startswith("fold.")] == list(POINTS)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", ["kill9", "raise(StoreUnavailable)"])
def test_a_fold_that_died_is_made_good_by_the_next(requests: Requests, point: str, action: str) -> None:
    before = requests.seen()
    status, output = run(requests.world, *FOLD, PRISM_FAILPOINTS=f"{point}={action}")
    assert status == (-signal.SIGKILL if action == "kill9" else 1), f"it did not happen: {output}"
    assert requests.seen() == before
    time.sleep(2.1 if action == "kill9" else 0)  # the lease
    status, output = run(requests.world, *FOLD)
    assert status == 0, output
    requests.world.catalog(NOON)
    assert requests.seen() == requests.wanted() != before
