"""The accepted window counts from the object's own time: in conversion, removal of uploads, and repair."""

from __future__ import annotations

import os
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from prism_assets.domain.tables.accepted import accepted_days
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.stages.engines import FailingEngine, another_worker, rest_is_over
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
LATER = "2026-04-20T12:00"
ACCEPT = "{past_days: 21, future_days: 3, from: object}"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table(accept=ACCEPT))
    return world


def stored_at(world: World, time: datetime, rows: list[Any], key: str | None = None) -> str:
    """Puts an object with a modification time."""
    key = key or world.drop(rows)
    path = world.root / "buckets" / "staging" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zipped(as_lines(rows)))
    os.utime(path, (time.timestamp(), time.timestamp()))
    return key


def data_keys(world: World) -> list[str]:
    return sorted(item.key for item in world.context.stores.list("lake", "") if item.key.endswith(".parquet"))


def test_rows_that_waited_longer_than_the_window_are_accepted(events: World) -> None:
    """Discovery was away for seven weeks."""
    rows = some_rows(3, utc(NOON))
    stored_at(events, utc(NOON), rows)
    report = events.stream(LATER)
    assert (report.rows_out, report.quarantined) == (3, 0)
    events.catalog(LATER)
    assert events.ids() == [row["id"] for row in rows]


def test_rows_are_too_old_for_the_object_they_came_in_and_not_for_the_day_they_are_read(events: World) -> None:
    stored_at(events, utc(LATER), some_rows(3, utc(NOON)))
    report = events.stream(LATER)
    assert (report.rows_out, report.quarantined) == (0, 3)


def test_history_that_is_copied_into_the_bucket_counts_from_the_dates_in_its_keys(world: World) -> None:
    world.apply(a_table(accept=ACCEPT).replace("staging/events/", "staging/2528.dwh.log.events/"))
    old = some_rows(3, utc("2018-08-23T12:00"))
    stored_at(world, utc(NOON), old, "2528.dwh.log.events/2018/08/23/20180823_0315_0c58.gz")
    assert world.stream(NOON).rows_out == 3
    world.catalog(NOON)
    assert world.ids() == [row["id"] for row in old]


def test_a_table_may_count_from_arrival(world: World) -> None:
    world.apply(a_table(accept="{from: arrival}"))
    stored_at(world, utc(NOON), some_rows(3, utc(NOON)))
    assert world.stream(LATER).quarantined == 3


def test_every_attempt_has_the_same_window(events: World) -> None:
    """Even if the object is listed again after its claim with another time."""
    key = stored_at(events, utc(NOON), some_rows(3, utc(NOON), every=timedelta(days=1)))
    worker = another_worker(events, FailingEngine(events.context.engine, times=1))
    worker.stream(NOON)
    first = data_keys(events)
    later = utc(LATER).timestamp()
    os.utime(events.root / "buckets" / "staging" / key, (later, later))
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET etag = NULL")  # on a disk it hangs on the time
    rest_is_over(events)
    assert worker.stream(LATER).rows_out == 3
    assert data_keys(events) == first
    assert len(first) == 3


def test_what_attempts_left_of_an_old_object_is_removed_when_it_is_given_up(events: World) -> None:
    """The keys follow from the same window as the rows."""
    stored_at(events, utc(NOON), some_rows(3, utc(NOON), every=timedelta(days=1)))
    attempts = events.settings.max_attempts
    worker = another_worker(events, FailingEngine(events.context.engine, times=attempts, transient=False))
    for turn in range(attempts):
        assert len(data_keys(events)) == (3 if turn else 0)
        worker.stream(LATER)
        rest_is_over(events)
    assert data_keys(events) == []


def test_an_old_object_is_repaired_with_the_rows_it_had(events: World) -> None:
    stored_at(events, utc(NOON), some_rows(3, utc(NOON), every=timedelta(days=1)))
    events.stream(LATER)
    keys = data_keys(events)
    before = [events.context.stores.get("lake", key) for key in keys]
    events.context.stores.delete("lake", keys)
    assert run_repair(events.context).repaired == 3
    assert [events.context.stores.get("lake", key) for key in keys] == before


def test_a_task_carries_only_those_closed_days_that_its_object_may_have_rows_of(events: World) -> None:
    """There are 400 closed days. The others would not change the decision."""
    stored_at(events, utc(NOON), some_rows(1, utc(NOON)))
    stored_at(events, utc("2025-12-01T12:00"), some_rows(1, utc(NOON)))
    events.discover(NOON)
    day = date(2026, 3, 1)
    marks = {day - timedelta(days=offset): 0 if offset % 3 else 1_000_000 for offset in range(400)}
    with events.context.database.begin() as connection:
        for marked, batch in marks.items():
            connection.exec_driver_sql(
                "INSERT INTO prism_partitions (prism_table_id, partition_date, closing_batch_id) "
                f"SELECT prism_table_id, date '{marked}', {batch} FROM prism_tables"
            )
    plan = start_batch(events.context, None)
    assert plan is not None
    assert len(plan.tasks) == 2
    for task in plan.tasks:
        window = accepted_days(plan.table(task.staging_object_id), task)
        before = {marked for marked, batch in marks.items() if plan.batch.batch_id > batch}
        assert task.delayed_dates == {marked for marked in before if marked in window}
        assert 14 <= len(task.delayed_dates) <= 17
