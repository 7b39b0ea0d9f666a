"""The published life of a partition, each step as a reader of the catalog sees it."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from prism_assets.domain.errors import LeaseLost
from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.stream.commit import commit_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.unread import retry_failed
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.findings import says
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"
LATER_ON = "its merge is due at 2026-03-01 15:59:00Z"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table())
    return world


def switched(world: World, rows: int = 20) -> list[int]:
    """Plays a day to its switch and returns the ids of its rows."""
    written = some_rows(rows, utc(NOON))
    world.drop(written[: rows // 2])
    world.drop(written[rows // 2 :])
    world.stream(NOON)
    world.catalog(NOON)
    world.catalog(AFTER)
    world.merge(AFTER)
    world.catalog(AFTER)
    return [row["id"] for row in written]


def test_a_new_object_is_readable_after_the_first_catalog_run(events: World) -> None:
    rows = some_rows(10, utc(NOON))
    events.drop(rows)
    assert events.stream(NOON).rows_out == 10
    assert events.status(DAY, NOON).state == "new"
    events.catalog(NOON)
    assert events.status(DAY, NOON).state == "live"
    assert events.ids() == [row["id"] for row in rows]
    assert events.partition(DAY).location.endswith(f"/live/dt={DAY}/")


def test_an_object_of_an_open_partition_needs_no_catalog_run(events: World) -> None:
    first, second = some_rows(10, utc(NOON)), some_rows(5, utc(NOON))
    events.drop(first)
    events.stream(NOON)
    events.catalog(NOON)
    events.drop(second)
    events.stream(NOON)
    assert events.ids() == [row["id"] for row in first + second]


def test_a_late_row_before_the_close_is_live(events: World) -> None:
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    events.drop(some_rows(3, utc(NOON)))
    events.stream(AFTER)
    assert len(events.ids()) == 4
    assert len(events.partition(DAY).objects) == 2


def test_the_day_is_over_at_midnight_of_the_tables_zone_and_not_before(world: World) -> None:
    world.apply(a_table(timezone="Asia/Tokyo"))
    world.drop(some_rows(1, utc("2026-03-01T14:59:59")))
    world.stream("2026-03-01T14:59")
    world.catalog("2026-03-01T14:59")
    assert world.status("2026-03-01", NOON).state == "live"
    world.catalog("2026-03-01T15:00")
    assert world.status("2026-03-01", NOON).state == "closed"


def test_sensors_and_previews_know_the_end_of_a_day_to_the_second(world: World) -> None:
    world.apply(a_table(timezone="Asia/Tokyo"))
    world.drop(some_rows(1, utc("2026-03-01T14:59:59")))
    world.stream("2026-03-01T14:59")
    world.catalog("2026-03-01T14:59")

    def steps(now: str) -> tuple[list[str], int]:
        work = [item.kind for item in find_work(world.context, "catalog", now=utc(now))]
        return work, len(preview(world.context, now=utc(now)))

    def waits(now: str) -> list[str]:
        return says(world.status(DAY, now).findings)

    assert steps("2026-03-01T14:59:59") == ([], 0)
    assert steps("2026-03-01T15:00:00") == (["close"], 1)
    assert waits("2026-03-01T14:59:59") == ["waits for the end of its day at 2026-03-01 15:00Z", LATER_ON]
    assert waits("2026-03-01T15:00:00") == ["waits for the next catalog run, to close", LATER_ON]


def test_a_batch_in_flight_keeps_the_partition_open_and_its_rows_live(events: World) -> None:
    """Its rows are visible from their upload on; closing without them would hide them."""
    first, in_flight = some_rows(4, utc(NOON)), some_rows(6, utc(NOON))
    events.drop(first)
    events.stream(NOON)
    events.catalog(NOON)
    events.drop(in_flight)
    events.discover(NOON)
    plan = start_batch(events.context, None)
    assert plan is not None
    results = list(events.context.engine.run(plan.tasks, plan.definitions))
    assert len(events.ids()) == 10
    report = events.catalog(AFTER)
    assert report.tables[0].marked == (date(2026, 3, 1),)
    assert report.tables[0].closed == ()
    assert "1 staging object" in report.tables[0].waiting[0].reason
    assert events.status(DAY, AFTER).state == "closing"
    assert len(events.ids()) == 10
    commit_batch(events.context, plan, results, utc(AFTER))
    assert events.catalog(AFTER).tables[0].closed == (date(2026, 3, 1),)
    assert len(events.ids()) == 10
    assert all("/live/" in item.url for item in events.partition(DAY).objects)


def test_an_object_that_first_came_before_the_mark_stays_live_when_its_batch_dies(events: World) -> None:
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    events.drop(some_rows(2, utc(NOON)))
    events.discover(NOON)
    plan = start_batch(events.context, None)
    assert plan is not None
    events.catalog(AFTER)
    _expire(events)
    assert events.stream(AFTER).reclaimed == 1
    assert events.status(DAY, AFTER).small_objects == 2
    assert all("/live/" in item.url for item in events.partition(DAY).objects)
    with pytest.raises(LeaseLost):
        commit_batch(events.context, plan, [], utc(AFTER))


def test_a_row_after_the_mark_is_delayed_and_readable_after_one_run(events: World) -> None:
    events.drop(some_rows(2, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    events.catalog(AFTER)
    assert events.status(DAY, AFTER).state == "closed"
    events.drop(some_rows(3, utc(NOON)))
    report = events.stream(AFTER)
    assert report.changes[0].delayed_objects == 1
    assert len(events.ids()) == 2
    events.catalog(AFTER)
    assert len(events.ids()) == 5
    assert sum("/delayed/" in item.url for item in events.partition(DAY).objects) == 1


def test_the_switch_is_refused_before_everything_is_merged(world: World) -> None:
    world.apply(a_table(merge="{interval: 3600, max_objects: 1}"))
    for _ in range(3):
        world.drop(some_rows(2, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    world.catalog(AFTER)
    refusal = world.catalog(AFTER).tables[0].waiting[0].reason
    assert refusal == "is not switched: it was never merged"
    world.merge(AFTER)
    assert world.catalog(AFTER).tables[0].switched == (date(2026, 3, 1),)


def test_a_partition_never_merged_does_not_switch(events: World) -> None:
    events.drop(some_rows(2, utc(NOON)))
    events.stream(NOON)
    for _ in range(3):
        assert events.catalog(AFTER).tables[0].switched == ()
    assert events.status(DAY, AFTER).findings[0].says == "waits for the switch: it was never merged"


def test_a_live_object_above_the_last_range_holds_up_the_switch(events: World) -> None:
    events.drop(some_rows(2, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    events.catalog(AFTER)
    events.merge(AFTER)
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_small_objects SET prism_small_object_id = DEFAULT")
    assert "1 live object is not merged yet" in events.catalog(AFTER).tables[0].waiting[0].reason


def test_ranges_that_lost_a_row_hold_up_the_switch(events: World) -> None:
    events.drop(some_rows(2, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    events.catalog(AFTER)
    events.merge(AFTER)
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_merge_ranges SET row_count = row_count - 1 WHERE row_count > 0")
    assert "1 row and not the same" in events.catalog(AFTER).tables[0].waiting[0].reason


def test_two_runs_are_needed_after_the_change_of_day(events: World) -> None:
    events.drop(some_rows(2, utc(NOON)))
    events.stream(NOON)
    events.catalog(NOON)
    assert events.catalog(AFTER).tables[0].closed == (date(2026, 3, 1),)
    events.merge(AFTER)
    assert events.catalog(AFTER).tables[0].switched == (date(2026, 3, 1),)


def test_after_the_switch_readers_read_merged_objects_only(events: World) -> None:
    ids = switched(events)
    assert events.ids() == ids
    partition = events.partition(DAY)
    assert [item.url.rsplit("/", 1)[1][:5] for item in partition.objects] == ["part-"]
    assert partition.location.endswith(f"merged/dt={DAY}/manifest-{2:019d}.json")


def test_a_delayed_row_after_the_switch_is_readable_after_one_run_and_merged_later(events: World) -> None:
    ids = switched(events)
    late = some_rows(3, utc(NOON))
    events.drop(late)
    events.stream("2026-03-08T10:00")
    events.catalog("2026-03-08T10:00")
    everything = ids + [row["id"] for row in late]
    assert events.ids() == everything
    assert events.partition(DAY).location.endswith(f"manifest-{2:019d}-{3:019d}.json")
    events.merge("2026-03-08T12:00")
    events.catalog("2026-03-08T12:00")
    assert events.ids() == everything
    assert events.partition(DAY).location.endswith(f"manifest-{3:019d}.json")


def test_a_small_last_range_is_extended_under_a_new_key(events: World) -> None:
    switched(events)
    before = events.partition(DAY).objects[0].url
    events.drop(some_rows(3, utc(NOON)))
    events.stream("2026-03-08T10:00")
    events.merge("2026-03-08T12:00")
    events.catalog("2026-03-08T12:00")
    after = events.partition(DAY).objects
    assert [item.url.rsplit("/", 1)[1].split("-r")[0] for item in after] == [f"part-{0:019d}-{3:019d}"]
    assert after[0].url != before


def test_later_batches_ride_on_the_merge_job_that_waits(events: World) -> None:
    events.drop(some_rows(2, utc(NOON)))
    events.stream(NOON)
    events.drop(some_rows(2, utc(NOON)))
    events.stream(f"{DAY}T12:30")
    assert events.merge(f"{DAY}T12:59").jobs == 0
    assert events.merge(f"{DAY}T13:00").jobs == 1
    assert events.merge(f"{DAY}T14:00").jobs == 0


def test_a_backlog_follows_at_once_in_a_job_of_its_own(world: World) -> None:
    world.apply(a_table(merge="{interval: 0, max_objects: 3}"))
    for _ in range(7):
        world.drop(some_rows(2, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    world.catalog(AFTER)
    report = world.merge(AFTER)
    assert [entry.objects_in for entry in report.merged] == [3, 3, 1]
    world.catalog(AFTER)
    assert len(world.ids()) == 14


def test_one_object_bigger_than_the_target_is_a_range_of_its_own(world: World) -> None:
    world.apply(a_table(merge="{interval: 0, target_bytes: 100}"))
    world.drop(some_rows(50, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    world.catalog(AFTER)
    assert len(world.merge(AFTER).merged[0].sizes) == 1


def test_every_command_changes_nothing_the_second_time(events: World) -> None:
    ids = switched(events)
    before = _everything(events)
    assert events.apply().lines == ()
    assert events.discover(AFTER).new == 0
    assert events.stream(AFTER).batches == 0
    assert events.merge(AFTER).jobs == 0
    assert not events.catalog(AFTER).changed
    assert events.ids() == ids
    assert _everything(events) == before


def test_broken_lines_are_set_aside_and_the_ledger_balances(events: World) -> None:
    good = some_rows(5, utc(NOON))
    body = as_lines(good) + b'{"time": "yesterday"}\nnot json\n[1]\n{"id": 1}\n'
    events.drop([], body=body)
    report = events.stream(NOON)
    assert (report.lines_in, report.rows_out, report.quarantined) == (9, 5, 4)
    events.catalog(NOON)
    assert len(events.ids()) == 5


def test_a_broken_object_does_not_stop_the_healthy_ones(events: World) -> None:
    events.drop([], body=b"\x1f\x8b\x08\x00broken")
    events.drop(some_rows(5, utc(NOON)))
    report = events.stream(NOON)
    assert (report.rows_out, report.errors) == (5, ())
    assert report.objects == 2


def test_an_object_that_vanished_is_failed_after_its_tries_and_leaves_nothing(events: World) -> None:
    key = events.drop(some_rows(5, utc(NOON)))
    events.discover(NOON)
    (events.root / "buckets" / "staging" / key).unlink()
    failed: tuple[str, ...] = ()
    for _ in range(events.settings.max_attempts):
        with events.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL")
        failed += events.stream(NOON).errors
    assert len(failed) == 1
    assert key in failed[0]
    assert events.stream(NOON).batches == 0


def test_an_object_that_was_given_up_comes_back_when_asked_for_and_is_delayed_by_then(events: World) -> None:
    rows = some_rows(5, utc(NOON))
    ids = switched(events)
    key = events.drop(rows)
    path = events.root / "buckets" / "staging" / key
    events.discover(NOON)
    body = path.read_bytes()
    path.unlink()
    for _ in range(events.settings.max_attempts):
        with events.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL, etag = NULL")
        events.stream(NOON)
    path.write_bytes(body)
    assert retry_failed(events.context) == 1
    assert events.stream(AFTER).changes[0].delayed_objects == 1
    events.catalog(AFTER)
    assert events.ids() == sorted([*ids, *[row["id"] for row in rows]])


def test_republishing_fills_an_empty_catalog_with_the_same(events: World) -> None:
    ids = switched(events)
    events.drop(some_rows(3, utc("2026-03-02T01:00")))
    events.stream("2026-03-02T01:00")
    events.catalog("2026-03-02T01:00")
    before = events.reader().table("log.events")
    client = events.glue._client
    client.delete_table(DatabaseName=f"{events.settings.glue_database_prefix}log", Name="events")
    events.catalog("2026-03-02T01:00", republish=True)
    assert events.reader().table("log.events") == before
    assert len(events.ids()) == len(ids) + 3


def test_a_table_that_the_catalog_lost_is_published_again_without_asking(events: World) -> None:
    ids = switched(events)
    client = events.glue._client
    client.delete_table(DatabaseName=f"{events.settings.glue_database_prefix}log", Name="events")
    events.catalog(AFTER)
    assert events.ids() == ids


def test_a_column_added_midway_is_null_before_and_survives_the_merge(events: World) -> None:
    events.drop(some_rows(2, utc(NOON), color="red"))
    events.stream(NOON)
    events.apply(a_table(columns=["{name: color, type: string}"]))
    events.drop(some_rows(2, utc(NOON), color="blue"))
    events.stream(NOON)
    events.catalog(NOON)
    events.catalog(AFTER)
    events.merge(AFTER)
    events.catalog(AFTER)
    assert events.query("SELECT color, count(*) FROM log.events GROUP BY 1 ORDER BY 1 NULLS LAST") == [
        ("blue", 2),
        (None, 2),
    ]


def test_rows_of_several_days_in_one_object_go_to_their_days(events: World) -> None:
    events.drop(some_rows(4, utc("2026-03-01T23:59:58"), every=timedelta(seconds=1)))
    events.stream("2026-03-02T00:05")
    events.catalog("2026-03-02T00:05")
    assert events.query("SELECT dt, count(*) FROM log.events GROUP BY 1 ORDER BY 1") == [
        (date(2026, 3, 1), 2),
        (date(2026, 3, 2), 2),
    ]


def _expire(world: World) -> None:
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_stream_batches SET heartbeat_time = now() - interval '1 hour' WHERE state = 'running'"
        )


def _everything(world: World) -> dict[str, object]:
    """All rows of all tables but the times of looking, and all objects."""
    with world.context.database.begin() as connection:
        names = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'prism%%'").scalars()
        found: dict[str, object] = {
            name: sorted(map(str, connection.exec_driver_sql(f"SELECT * FROM {name}")))
            for name in list(names)
            if name != "prism_stream_scans"
        }
    found["objects"] = sorted((info.key, info.etag) for info in world.context.stores.list("lake", ""))
    return found
