"""A column that is widened by copies: no reader fails, whoever it is, and none finds null or another value.

Before the copies take the place of all objects everything is as it was, and behind it everything is wide: so also one
that takes the type of Glue at its word reads all days all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prism_assets.stages.doctor.run import run_doctor
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass
from prism_assets_tests.stages.seen_columns import NIGHT, publish
from prism_assets_tests.stages.widened import (
    AFTER,
    LATER,
    NARROW,
    NEXT,
    WIDE,
    WIDENED,
    a_file,
    arrive,
    definition,
    drop,
    plans,
    said,
    see,
)
from prism_assets_tests.world import World

TURNED, FLIPPED = "2026-03-02T11:05", "2026-03-02T11:20"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


@pytest.fixture
def rows(world: World) -> list[dict[str, Any]]:
    """Of a day that was merged and switched before the widening, and of an open one."""
    world.apply(a_file(NARROW))
    found = [*arrive(world), *arrive(world)]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    found += arrive(world, NEXT, at=NEXT)
    publish(world, NEXT)
    return found


def states(world: World) -> set[str]:
    """How far the columns are that are widened."""
    return {str(column.widening.state) for column in definition(world).columns if column.widening}


def test_no_reader_fails_when_a_column_is_widened(world: World, rows: list[dict[str, Any]]) -> None:
    (line, *_, left) = world.apply(a_file(WIDE), now=WIDENED).lines
    assert line == (
        "widen column size of log.events from integer to bigint: merged objects are copied so, and when all are, "
        "readers are turned to the copies; until then the column stays integer for all, and no reader fails"
    )
    assert left == (
        "copy objects of log.events with wider types: 1 merged object to be copied, 1 object of days that are open, of "
        "2026-03-01 to 2026-03-02"
    )
    assert states(world) == {"copying"}
    assert said(world, WIDENED) == (
        "column size is integer, and to be bigint since 2026-03-02 10:00Z: merged objects are copied with that type: "
        "1 merged object to be copied"
    )
    rows += [*arrive(world, LATER, at=NEXT), *arrive(world, LATER)]
    publish(world, LATER)
    see(world, rows, NARROW)
    assert plans(world.merge(LATER, everything=True)) == [
        "write extend (0, 5] with 1 object",
        "write a copy of (0, 5] with wider types",
    ]
    publish(world, LATER)
    see(world, rows, NARROW)
    assert states(world) == {"turning"}
    late = [*drop(world, at=NEXT, wide=True), *drop(world, wide=True)]
    world.stream(TURNED)
    assert "new objects wait, until 2026-03-02 12:00 at most" in said(world, TURNED).replace("Z", "")
    publish(world, TURNED)
    see(world, rows, NARROW)
    assert plans(world.merge(TURNED)) == [
        "write new (0, 4] with 2 objects",
        "write a copy of (0, 4] with wider types",
    ]
    publish(world, TURNED)
    see(world, rows, NARROW)
    assert states(world) == {"turning"}, "what readers were sent to last is not shown yet"
    (report,) = world.catalog(FLIPPED).tables
    assert report.columns_advanced[0] == (
        "turn column size of log.events to bigint: its copies take the place of all objects"
    )
    world.iceberg(FLIPPED)
    assert states(world) == set()
    see(world, rows, WIDE)
    world.stream(FLIPPED)
    publish(world, FLIPPED)
    rows += late
    see(world, rows, WIDE)
    world.merge(AFTER, everything=True)
    publish(world, AFTER)
    see(world, rows, WIDE)
    assert not world.catalog(AFTER).changed
    hours_pass(world, 100)
    assert deleted(world), "none of what readers need"
    see(world, rows, WIDE)
    assert run_doctor(world.context, deep=True).is_clean
