"""Kills at random moments, while objects arrive, days go by in seconds and a reader polls."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets_tests.crash import load
from prism_assets_tests.crash.fleet import Fleet, Work


def under_load(fleet: Fleet, **amount: Any) -> dict[str, Any]:
    """What became of a lake under a load."""
    (done,) = fleet.map([Work(function=f"{load.__name__}:run", arguments=amount)])
    assert not done.error, done.error
    found: dict[str, Any] = done.result
    return found


def test_commands_killed_at_random_moments_lose_double_and_hide_nothing(fleet: Fleet) -> None:
    found = under_load(fleet, seed=1, kills=30, rows=10_000)
    assert found["violations"] == []
    assert sum(found["kills"].values()) >= 30
    assert set(found["kills"]) == set(load.ROLES)
    assert found["rows"] >= 10_000
    assert found["days"] >= 2
    assert found["looks"] >= 30


@pytest.mark.stack
def test_servers_killed_at_random_moments_lose_double_and_hide_nothing(fleet: Fleet) -> None:
    found = under_load(fleet, seed=2, kills=20, rows=2_000, hours=0.5, pause=1.5, servers=True)
    assert found["violations"] == []
    assert sum(found["kills"].values()) >= 20
    assert set(found["kills"]) >= set(load.SERVERS)
    assert found["looks"] >= 30
