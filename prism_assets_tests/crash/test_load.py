"""Kills at random moments, while objects arrive, days go by in seconds and a reader polls."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets_tests.crash import load
from prism_assets_tests.crash.fleet import Fleet, Work
from prism_assets_tests.reliability import Figures


def under_load(fleet: Fleet, figures: Figures, **amount: Any) -> dict[str, Any]:
    """The result of a lake under load."""
    (done,) = fleet.map([Work(function=f"{load.__name__}:run", arguments=amount)])
    assert not done.error, done.error
    found: dict[str, Any] = done.result
    servers = {f"of_{name}": count for name, count in found["kills"].items() if name in load.SERVERS}
    figures.note(
        f"Random SIGKILL, commands{' and servers' if servers else ''}",
        found["violations"],
        kills=sum(found["kills"].values()),
        **servers,
        rows=found["rows"],
        objects=found["objects"],
        days=found["days"],
        looks=found["looks"],
    )
    return found


def test_commands_killed_at_random_moments_lose_double_and_hide_nothing(
    fleet: Fleet, figures: Figures, long: bool
) -> None:
    kills, rows = (300, 100_000) if long else (10, 5_000)
    found = under_load(fleet, figures, seed=1, kills=kills, rows=rows, rows_each=rows // 100)
    assert found["violations"] == []
    assert sum(found["kills"].values()) >= kills
    assert set(found["kills"]) == set(load.ROLES)
    assert found["rows"] >= rows
    assert found["days"] >= 2
    assert found["looks"] >= 30


@pytest.mark.stack
def test_servers_killed_at_random_moments_lose_double_and_hide_nothing(
    fleet: Fleet, figures: Figures, long: bool
) -> None:
    kills, rows = (300, 300_000) if long else (16, 1_500)
    each = 1_000 if long else 100
    found = under_load(
        fleet, figures, seed=2, kills=kills, rows=rows, rows_each=each, hours=0.5, pause=1.5, servers=True
    )
    assert found["violations"] == []
    assert sum(found["kills"].values()) >= kills
    assert set(found["kills"]) >= set(load.SERVERS)
    assert found["looks"] >= 30
