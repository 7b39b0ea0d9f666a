"""Spool objects in garbage collection: which go, when, and which ranges of offsets remain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from prism_assets.metadata.files import gc_log
from prism_assets.metadata.intake import replays
from prism_assets.metadata.kafka import range_upkeep
from prism_assets.stages.drop.run import run_drop
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import counts, deleted, gc, hours_pass
from prism_assets_tests.stages.spooled import a_topic_table, commit, put, spool
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
AN_AGE = 80.0


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform with a brake that holds back nearly all garbage of one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=0.01, quarantine_days=36_500) as made:
        yield made


def in_days(days: float) -> datetime:
    """A time after the conversions of this test, which have real times."""
    return datetime.now(timezone.utc) + timedelta(days=days)


def there(world: World, key: str) -> bool:
    return (world.root / "buckets" / "lake" / key).exists()


def spooled(world: World, objects: int = 2, rows: int = 3) -> list[str]:
    """Converts spool objects of one partition. Returns their keys."""
    keys = [spool(world, some_rows(rows, utc(NOON)), number * rows) for number in range(objects)]
    world.stream(NOON)
    hours_pass(world, AN_AGE)
    return keys


def ranges(world: World) -> list[tuple[Any, ...]]:
    statement = """
        SELECT kind, from_offset, to_offset, records, prism_staging_object_id IS NOT NULL FROM prism_offset_ranges
        ORDER BY prism_topic_id, partition, to_offset
    """
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def test_converted_spool_objects_go_after_their_days_and_no_brake_holds_them(world: World) -> None:
    world.apply(a_topic_table(stream="topic: app, spool_days: 7"))
    keys = spooled(world)
    assert deleted(world, now=in_days(6.9)) == {}
    assert deleted(world, now=in_days(7.1)) == {"expired": 2}
    assert not any(there(world, key) for key in keys)


def test_one_day_means_one_day_whatever_the_least_age_of_other_garbage(world: World) -> None:
    assert world.settings.gc_age_hours > 24
    world.apply(a_topic_table(stream="topic: app, spool_days: 1"))
    spool(world, some_rows(1, utc(NOON)))
    world.stream(NOON)
    assert deleted(world, now=in_days(1.1)) == {"expired": 1}


def test_spool_objects_go_once_all_of_their_rows_have_expired(world: World) -> None:
    """The default of three days in the future counts: a row may be of a day after the arrival."""
    world.apply(a_topic_table(stream="topic: app, spool_days: 90") + "retention_days: 7\n")
    spooled(world)
    assert deleted(world, now=in_days(10)) == {}
    assert deleted(world, now=in_days(11.1)) == {"expired": 2}


def test_a_spool_object_that_waits_stays_however_old_it_is(world: World) -> None:
    world.apply(a_topic_table(stream="topic: app, spool_days: 1"))
    key = spool(world, some_rows(1, utc(NOON)))
    hours_pass(world, 10_000)
    assert deleted(world, now=in_days(400)) == {}
    assert there(world, key)


def test_an_orphan_goes_once_others_have_its_messages_and_it_is_old(world: World) -> None:
    world.apply(a_topic_table())
    first, orphan = spool(world, some_rows(1, utc(NOON))), put(world, some_rows(1, utc(NOON)), 1)
    hours_pass(world, AN_AGE)
    assert deleted(world) == {}, "its worker may stand still between its PUT and its commit"
    second = spool(world, some_rows(2, utc(NOON)), 1)
    assert deleted(world) == {"stray": 1}
    assert [there(world, key) for key in (first, orphan, second)] == [True, False, True]


def test_a_young_orphan_stays(world: World) -> None:
    world.apply(a_topic_table())
    put(world, some_rows(1, utc(NOON)))
    spool(world, some_rows(2, utc(NOON)))
    assert deleted(world) == {}


def test_an_orphan_of_a_topic_that_left_the_file_goes(world: World) -> None:
    world.apply(a_topic_table())
    spool(world, some_rows(1, utc(NOON)))
    put(world, some_rows(1, utc(NOON)), 1)
    world.apply(a_topic_table(stream="topic: other"))
    hours_pass(world, AN_AGE)
    assert deleted(world) == {"stray": 1}


def test_a_spool_object_of_an_unknown_topic_is_foreign(world: World) -> None:
    """PostgreSQL was restored to a time before the topic was registered."""
    world.apply(a_topic_table())
    key = put(world, some_rows(1, utc(NOON)))
    hours_pass(world, AN_AGE)
    (table,) = gc(world).tables
    assert (table.deleted, table.foreign_keys) == ({}, (key,))


def test_the_last_definition_of_a_topic_that_left_the_file_says_how_long_its_objects_stay(world: World) -> None:
    world.apply(a_topic_table(stream="topic: app, spool_days: 90"))
    spooled(world)
    world.apply(a_topic_table(stream="topic: other, spool_days: 1"))
    assert deleted(world, now=in_days(40)) == {}
    assert deleted(world, now=in_days(91)) == {"expired": 2}


def test_no_object_goes_while_a_rebuild_may_read_it(world: World) -> None:
    world.apply(a_topic_table(stream="topic: app, spool_days: 1"))
    spooled(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_rewrites (prism_table_id, kind, state, definition_version, worker, lease_token) "
            "SELECT prism_table_id, 'repair', 'running', 1, 'w', gen_random_uuid() FROM prism_tables"
        )
    assert deleted(world, now=in_days(2)) == {}


def test_a_rebuild_reads_spool_objects_and_names_them_once_they_are_gone(world: World) -> None:
    world.apply(a_topic_table(stream="topic: app, spool_days: 1"))
    spooled(world)
    world.catalog("2026-03-02T00:10")
    world.apply(a_topic_table(stream="topic: app, spool_days: 1", columns=["{name: more, type: string}"]))
    day = utc(NOON).date()
    report = run_rebuild(world.context, "log.events", day=day, now=utc("2026-03-02T00:30"))
    assert report.errors == ()
    assert report.changed
    deleted(world, now=in_days(2))
    world.apply(a_topic_table(stream="topic: app, spool_days: 1", columns=["{name: other, type: string}"]))
    gone = run_rebuild(world.context, "log.events", day=day, now=utc("2026-03-02T00:30"))
    assert "2 staging objects are gone" in "".join(gone.errors)


def test_an_object_about_to_be_deleted_does_not_restart_for_a_replay(world: World) -> None:
    world.apply(a_topic_table(columns=["{name: n, type: bigint, required: true}"]))
    key = spool(world, some_rows(2, utc(NOON)))
    world.stream(NOON)
    world.apply(a_topic_table(columns=["{name: n, type: bigint}"]))
    with world.context.database.begin() as connection:
        (version,) = connection.exec_driver_sql("SELECT definition_version FROM prism_tables").scalars()
        (number,) = connection.exec_driver_sql("SELECT prism_staging_object_id FROM prism_staging_objects").scalars()
        connection.exec_driver_sql(
            "INSERT INTO prism_gc_log (prism_table_id, bucket_name, object_key, content_length, partition_date, "
            f"last_modified, reason, mark_time) VALUES (1, 'lake', '{key}', 1, now(), now(), 'expired', now())"
        )
        assert replays.restart(connection, [number], version) == 0
        gc_log.unmark(connection, "lake", [key])
        assert replays.restart(connection, [number], version) == 1


def test_a_replay_makes_rows_of_messages_in_quarantine(world: World) -> None:
    world.apply(a_topic_table(columns=["{name: n, type: bigint, required: true}"]))
    rows = some_rows(2, utc(NOON))
    spool(world, rows)
    world.stream(NOON)
    world.apply(a_topic_table(columns=["{name: n, type: bigint}"]))
    assert run_replay(world.context, "log.events", now=utc(NOON)).rows_added == 2
    world.catalog(NOON)
    assert world.ids() == sorted(row["id"] for row in rows)


# ranges of offsets


def test_ranges_of_deleted_objects_are_joined_and_the_chain_stays_whole(world: World) -> None:
    world.apply(a_topic_table(stream="topic: app, spool_days: 7"))
    spooled(world)
    commit(world, None, 0, to=9)
    spool(world, some_rows(2, utc(NOON)), 9)
    assert [row[1:3] for row in ranges(world)] == [(None, 0), (0, 3), (3, 6), (6, 9), (9, 11)]
    gc(world, now=in_days(8))
    assert ranges(world) == [("start", None, 0, 0, False), ("read", 0, 9, 6, False), ("read", 9, 11, 2, True)]
    gc(world, now=in_days(8))
    assert len(ranges(world)) == 3


def test_ranges_beside_a_skipped_one_stay_apart(world: World) -> None:
    world.apply(a_topic_table())
    spool(world, some_rows(1, utc(NOON)))
    for to in (2, 3):
        commit(world, None, 0, to=to)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_offset_ranges SET kind = 'skipped' WHERE to_offset = 3")
    for to in (4, 5):
        commit(world, None, 0, to=to)
    gc(world)
    assert [row[:3] for row in ranges(world)] == [
        ("start", None, 0), ("read", 0, 1), ("read", 1, 2), ("skipped", 2, 3), ("read", 3, 5),
    ]  # fmt: skip


def test_many_ranges_are_joined_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(a_topic_table())
    for to in range(1, 11):
        commit(world, None, 0, to=to)
    monkeypatch.setattr(range_upkeep, "_AT_ONCE", 3)
    gc(world)
    assert [row[:3] for row in ranges(world)] == [("start", None, 0), ("read", 0, 10)]


# drop


def test_a_drop_deletes_the_spool_the_topic_and_its_ranges(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_upkeep, "_AT_ONCE", 2)
    world.apply(a_topic_table())
    keys = spooled(world, objects=3)
    head, _, tail = a_topic_table().partition("streams:")
    world.apply(f"{head}retired: true\npartition:{tail.partition('partition:')[2]}")
    (world.settings.tables_dir / "events.yaml").unlink()
    for day in range(1, 30):
        run_drop(world.context, "log.events", confirm="log.events", now=in_days(day))
        hours_pass(world, AN_AGE)
    assert not any(there(world, key) for key in keys)
    left = ("prism_offset_ranges", "prism_topic_partitions", "prism_topics", "prism_streams", "prism_tables")
    with world.context.database.begin() as connection:
        found = {name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() for name in left}
    assert found == dict.fromkeys(left, 0)


def test_the_lines_of_a_report_count_spool_objects(world: World) -> None:
    world.apply(a_topic_table(stream="topic: app, spool_days: 7"))
    spooled(world)
    (table,) = gc(world, now=in_days(8), dry_run=True).tables
    assert counts(table) == {"expired": 2}
