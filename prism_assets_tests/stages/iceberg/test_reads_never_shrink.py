"""Three kinds of readers poll the Iceberg table while rows stream in, merge, close and are published."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.iceberg.days import is_sound
from prism_assets_tests.stages.iceberg.pollers import polled, with_a_held_snapshot, with_duckdb, with_pyiceberg
from prism_assets_tests.world import World

REPLACES, LONG_REPLACES = 10, 100
MERGE = "{interval: 0, target_bytes: 2500, max_objects: 4}"


def test_reads_never_shrink_and_show_no_row_twice(world: World, long: bool) -> None:
    world.apply(a_table(iceberg="{keep_hours: 1}", merge=MERGE))
    kinds = (with_pyiceberg, with_a_held_snapshot, with_duckdb)
    with polled(*(partial(kind, world.settings, "log.events") for kind in kinds)) as pollers:
        ids = rounds(world.context, "log.events", world.drop, LONG_REPLACES if long else REPLACES)
    for poller in pollers:
        assert poller.faults == (set(), set(), [])
        assert len(set(poller.looks)) > 3, "the client looked often enough to see the table grow"
    assert is_sound(world, ids)
    assert len(world.iceberg_table().metadata.snapshots) < len(ids), "some have gone by their age"


def rounds(
    context: StageContext,
    name: str,
    drop: Callable[[list[dict[str, Any]]], object],
    replaces: int,
    start: str = "2026-03-01T10:00",
) -> list[int]:
    """Plays rounds of all stages until so many commits have replaced objects by merged ones; returns all ids."""
    ids: list[int] = []
    now = utc(start)
    for number in itertools.count():
        rows = some_rows(5, now)
        if number % 5 == 4:
            rows += some_rows(2, now - timedelta(days=1))
        drop(rows)
        ids += [row["id"] for row in rows]
        replaces -= play(context, name, now, number)
        now += timedelta(minutes=25)
        if not replaces:
            break
    return ids


def play(context: StageContext, name: str, now: datetime, number: int) -> bool:
    """Runs one round: merges in odd rounds, a catalog run in every third. Returns whether the commit removed files."""
    run_discover(context, now=now, names=[name])
    run_stream(context, now=now, names=[name])
    if number % 2:
        run_merge(context, now=now, names=[name], ignore_schedule=True)
    if number % 3 == 0:
        run_catalog(context, now=now, names=[name])
    report = run_iceberg(context, now=now, names=[name], ignore_pace=True)
    assert report.errors == ()
    return any(table.commit is not None and table.commit.files_out > 0 for table in report.tables)
