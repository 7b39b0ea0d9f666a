"""Two erasures that hit one object of an open day: the second says what its proof waits for, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from prism_assets.stages.erase.report import ErasureStatus, read_erasures
from prism_assets.stages.erase.run import continue_erasures
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import gc, hours_pass
from prism_assets_tests.stages.test_erase import NAME, TABLE, arrive, erase, later, users
from prism_assets_tests.world import World


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """One run may delete everything that is garbage."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def rounds(world: World, now: str, count: int = 3) -> ErasureStatus:
    """Publishes, goes on erasing and collects garbage some times; returns the status of the last erasure."""
    for _ in range(count):
        world.catalog(now)
        hours_pass(world, 100)
        report = continue_erasures(world.context, now=later(), forced=True)
        gc(world, now=later(20))
    assert report.left_for_a_person == ()
    return read_erasures(world.context, world.context.choose_tables([NAME]))[-1]


def text_of(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M}"


def test_the_second_says_which_day_has_to_close_and_when_and_is_proved_by_itself(world: World) -> None:
    world.apply(TABLE, now="2026-03-01T00:00")
    noon = "2026-03-01T12:00"
    arrive(world, [41, 42, 43, *range(100, 130)])
    world.catalog(noon)
    erase(world, "user_id = 41", rows=1)
    assert rounds(world, noon).state == "proved"
    erase(world, "user_id = 42", rows=1)
    status = rounds(world, noon)
    assert status.state == "waiting"
    assert status.waits_for is not None
    assert status.waits_for.startswith(
        "the close of 2026-03-01, at 2026-03-02 00:00Z or later, and for the reader lease"
    )
    assert "1 row or line still matches in" in status.waits_for
    assert "-r1.parquet, which an earlier rewriting left" in status.waits_for
    assert 42 not in users(world)
    world.catalog("2026-03-02T01:00")
    assert rounds(world, "2026-03-02T01:10").state == "proved"


def test_it_waits_for_a_person_three_days_after_the_end_of_the_day_and_not_of_the_erasure(world: World) -> None:
    today = datetime.now(timezone.utc)
    ahead = today + timedelta(days=2)
    world.apply(TABLE, now=text_of(today))
    arrive(world, [41, 42, 43, *range(100, 130)], at=text_of(ahead), now=text_of(today))
    world.catalog(text_of(today))
    for user in (41, 42):
        erase(world, f"user_id = {user}", rows=1)
        status = rounds(world, text_of(today))
    assert f"the close of {ahead:%Y-%m-%d}" in str(status.waits_for)

    def overdue(days: int) -> list[bool]:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql(f"UPDATE prism_erasures SET create_time = create_time - interval '{days} days'")
        report = continue_erasures(world.context, names=[NAME], now=later())
        return [item.for_a_person for item in report.erasures]

    assert overdue(4) == [False], "it goes on by itself when the day is over"
