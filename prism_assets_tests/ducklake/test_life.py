"""A client of DuckLake that stays connected reads each row once, from its commit on, whatever becomes of it."""

from __future__ import annotations

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.world import World


def test_rows_are_read_at_their_commit(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table())
    rows = some_rows(10, utc("2026-03-01T12:00"))
    world.drop(rows)
    world.stream("2026-03-01T12:10")
    assert lake.ids() == [row["id"] for row in rows]
