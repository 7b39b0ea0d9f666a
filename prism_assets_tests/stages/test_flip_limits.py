"""When a column flips to its wider type: new objects wait for the flip, but not for long."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from prism_assets.domain.columns import transitions as column_transitions
from prism_assets.domain.findings import Acts
from prism_assets.domain.tables.drift import FieldKind, SeenField
from prism_assets.metadata.days import partitions
from prism_assets.metadata.leases import LeaseKind
from prism_assets.metadata.tables import undefined_fields
from prism_assets.stages.catalog.column_transitions import advance_columns
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.leases import leased
from prism_assets.stages.merge import commit
from prism_assets.stages.run import run_until_idle
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.seen_columns import NOON, publish
from prism_assets_tests.stages.test_flips import world as world
from prism_assets_tests.stages.widened import (
    LATER,
    NARROW,
    NEXT,
    WIDE,
    WIDENED,
    a_file,
    arrive,
    definition,
    drop,
    said,
    see,
    states,
)
from prism_assets_tests.stages.widened import rows as rows
from prism_assets_tests.world import World


def park_a_merge(world: World) -> None:
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_merge_jobs (prism_partition_id, schedule_time, parked, last_error) "
            "SELECT min(prism_partition_id), now(), true, 'as a test says' FROM prism_partitions"
        )


def test_a_flip_is_given_up_and_new_objects_are_taken_in(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    world.catalog(WIDENED)
    assert states(world) == {"flipping"}
    drop(world, at=NEXT)
    world.stream(LATER)
    park_a_merge(world)
    assert "1 merge that failed" in said(world, "2026-03-02T10:09")
    (report,) = world.catalog("2026-03-02T11:01").tables
    assert report.columns_advanced[0] == (
        "give up the flip of column size of log.events as bigint for now: new objects are taken in again"
    )
    assert said(world, "2026-03-02T11:01") == (
        "column size is integer, and to be bigint since 2026-03-02 10:00Z: the flip to it did not end in time, "
        "until 2026-03-02 11:01Z; it is tried again at 2026-03-03 11:01Z, or by `prism table flip`; left now: "
        "1 object of open days, 1 merge that failed, of 2026-03-02"
    )
    assert world.stream(LATER).rows_out == 3


def test_turns_do_not_wait_for_a_flip_that_nothing_moves(world: World, rows: list[dict[str, Any]]) -> None:
    """The obstacle is left to a person and reported together with the waiting objects."""
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    world.catalog(WIDENED)
    drop(world, at=NEXT)
    park_a_merge(world)
    ticks = itertools.count()

    def clock() -> datetime:
        assert next(ticks) < 8, "the turns do not end"
        return utc(WIDENED) + timedelta(minutes=9)

    run_until_idle(world.context, clock=clock)
    found = read_findings(world.context, None, now=clock())
    assert [f"{item.table}: {item.says}" for item in found if item.acts is Acts.RUN and item.ends_runs] == [
        "log.events: 1 staging object waits to be converted, as columns flip to wider types: new objects wait, until "
        "2026-03-02 10:10Z at most, for 1 merge that failed"
    ]


def test_objects_are_taken_in_again_also_if_nobody_ends_a_flip(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    world.catalog(WIDENED)
    drop(world, at=NEXT)
    assert world.stream(LATER).rows_out == 0
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_tables SET intake_paused_until = intake_paused_until - interval '2 hours'"
        )
    assert world.stream(LATER).rows_out == 3


def test_no_flip_begins_in_vain(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    park_a_merge(world)
    for hour in range(3):
        world.catalog(f"2026-03-02T1{hour}:00")
    assert states(world) == {"copying"}
    assert said(world, LATER).endswith("the flip to it waits for 1 merge that failed")


def test_a_clock_that_is_ahead_makes_no_flip_last_for_longer(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    table = definition(world)
    with leased(world.context, LeaseKind.CATALOG, [table.table_id]) as held:
        assert advance_columns(world.context, held[table.table_id], table, utc("2199-03-02T11:01"))
    assert states(world) == {"flipping"}
    present = datetime.now(timezone.utc)
    assert f"until {present + timedelta(minutes=10):%Y-%m-%d}" in said(world, present.isoformat())


def test_days_that_get_late_rows_all_the_time_flip_with_the_others(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come while their day is merged. So a merge is always due, and the last range is always new."""
    monkeypatch.setattr(column_transitions, "MOST_UNCOPIED_TO_BEGIN", 1)
    now = [utc(WIDENED)]

    def meanwhile(point: str) -> None:
        if point == "merge.before_commit" and states(world) == {"copying"}:
            rows.extend(drop(world))
            world.stream(now[0].isoformat())

    monkeypatch.setattr(commit, "failpoint", meanwhile)
    world.apply(a_file(WIDE).replace("interval: 0", "interval: 600"), now=WIDENED)
    rows += arrive(world, WIDENED)
    for minute in range(0, 60, 5):
        now[0] = utc(WIDENED) + timedelta(minutes=minute)
        world.merge(now[0].isoformat())
        publish(world, now[0].isoformat())
        see(world, rows, NARROW if states(world) else WIDE)
        if not states(world):
            break
    see(world, rows, WIDE)


def test_a_batch_that_counts_fields_and_a_flip_wait_for_each_other_in_order(
    world: World, rows: list[dict[str, Any]]
) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    table_id = definition(world).table_id
    field = SeenField(table_id=table_id, key="k", kind=FieldKind.NUMBER, count=1, bucket="b", object_key="o", line=1)
    with ThreadPoolExecutor(1) as thread:
        with world.context.database.begin() as connection:
            partitions.ensure_and_lock(connection, {(table_id, utc(NOON).date())})
            told = thread.submit(run_catalog, world.context, now=utc(WIDENED))
            with pytest.raises(TimeoutError):
                told.result(timeout=0.5)
            undefined_fields.count_fields(connection, [field], utc(WIDENED))
        assert told.result(timeout=120).errors == ()
