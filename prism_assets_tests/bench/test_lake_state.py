"""The state made by the scale benchmark: at rest by the protocol, until work is added."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from bench.lake_state import LakeSize, fill_lake, make_work, write_table_files
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files.merge_queue import due_merges
from prism_assets.metadata.intake.backlog import count_pending
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.status import read_status
from prism_assets_tests.world import World

SIZE = LakeSize(tables=3, schemas=2, days=5, objects=2, runs=0, shown_days=1)
NOW = datetime(2026, 3, 10, 12, tzinfo=timezone.utc)


def filled(world: World, folder: Path) -> int:
    write_table_files(folder / "files", SIZE)
    run_apply(world.context, folder / "files", NOW)
    return fill_lake(world.context, SIZE, NOW.date())


def test_a_filled_lake_is_at_rest(world: World, tmp_path: Path) -> None:
    assert filled(world, tmp_path) == 15
    assert find_work(world.context, "catalog", now=NOW) == []
    with world.context.database.begin() as connection:
        assert count_pending(connection, 60) == []
        assert due_merges(connection, NOW, 60) == []


def test_its_days_are_switched_closed_and_live(world: World, tmp_path: Path) -> None:
    filled(world, tmp_path)
    found = read_status(world.context, now=NOW, names=["s00.t000"], day=None)[0].partitions
    assert [str(item.state) for item in sorted(found, key=lambda item: item.date)][-3:] == [
        "switched",
        "closed",
        "live",
    ]


def test_new_objects_can_be_registered_behind_it(world: World, tmp_path: Path) -> None:
    filled(world, tmp_path)
    make_work(world.context)
    with world.context.database.begin() as connection:
        assert [(count.pending, count.abandoned) for count in count_pending(connection, 60)] == [(1, 0)] * 3
        assert len(due_merges(connection, datetime.now(timezone.utc), 60)) == 6
        assert partitions.ensure_and_lock(connection, {(1, NOW.date().replace(year=2027))})
