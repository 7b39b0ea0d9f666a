"""Streams of topics from the table file on: apply, discovery, and who reads which spool object."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.metadata.intake import staging_objects
from prism_assets.metadata.intake.backlog import count_stopped
from prism_assets.metadata.intake.streams import load_streams
from prism_assets.stages.erase.report import read_erasures
from prism_assets.stages.erase.run import continue_erasures, run_erase, sources_of
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.spooled import a_topic_table, put, spool
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


def keys_of(world: World) -> list[str]:
    """The keys of all registered objects."""
    with world.context.database.begin() as connection:
        return list(connection.exec_driver_sql("SELECT object_key FROM prism_staging_objects ORDER BY 1").scalars())


# apply


def test_a_new_topic_is_told_with_its_start_and_its_options(world: World) -> None:
    lines = world.apply(a_topic_table(stream="topic: app, start: latest, tombstones: reject")).lines
    assert "create stream events of log.events at kafka://main/app, start: latest, tombstones: reject" in lines


def test_an_apply_of_the_same_file_changes_nothing(world: World) -> None:
    world.apply(a_topic_table())
    assert world.apply(a_topic_table()).lines == ()


def test_other_options_change_the_stream_and_another_topic_makes_another_stream(world: World) -> None:
    world.apply(a_topic_table())
    assert world.apply(a_topic_table(stream="topic: app, spool_days: 7, start: latest")).lines == (
        "change stream events of log.events at kafka://main/app, start: latest, spool_days: 7 (where it has not begun)",
    )
    assert world.apply(a_topic_table(stream="topic: app, cluster: other")).lines == (
        "create stream events of log.events at kafka://other/app, start: earliest",
        "end stream events of log.events at kafka://main/app: objects already there are still converted",
    )


def test_messages_of_a_stopped_stream_wait_in_kafka(world: World) -> None:
    world.apply(a_topic_table())
    assert world.apply(a_topic_table(stream="topic: app, enabled: false")).lines == (
        "stop stream events of log.events at kafka://main/app: messages wait in Kafka, as long as it keeps them",
    )


def test_two_tables_read_one_topic_without_a_route(world: World) -> None:
    assert world.apply(a_topic_table(), a_topic_table("log.audit")).problems == ()
    with world.context.database.begin() as connection:
        assert [known.stream.url for known in load_streams(connection)] == ["kafka://main/app"] * 2


def test_topics_with_names_inside_each_other_do_not_overlap(world: World) -> None:
    assert world.apply(a_topic_table(), a_topic_table("log.audit", "topic: app.events")).problems == ()


def test_a_topic_does_not_move_to_another_table(world: World) -> None:
    """The other table reads the topic by itself, from its own start."""
    world.apply(a_topic_table())
    lines = world.apply(a_table(), a_topic_table("log.taker")).lines
    assert "create stream taker of log.taker at kafka://main/app, start: earliest" in lines
    assert "end stream events of log.events at kafka://main/app: objects already there are still converted" in lines


def test_a_topic_is_neither_listed_nor_looked_at(world: World) -> None:
    assert world.apply(a_topic_table()).looks == ()
    report = world.discover(NOON)
    assert (report.scans, report.errors) == ((), ())


# spool objects


def test_a_spool_object_without_a_commit_is_never_registered(world: World) -> None:
    """K-H10. A worker that dies between its PUT and its commit leaves an object whose messages are read again."""
    world.apply(a_topic_table(), a_table("log.others"))
    committed = spool(world, some_rows(2, utc(NOON)))
    put(world, some_rows(2, utc(NOON)), 2)
    world.discover(NOON)
    assert keys_of(world) == [committed]


def test_no_stream_may_lie_around_the_spool(world: World) -> None:
    with pytest.raises(DefinitionError, match="overlaps the lake"):
        world.apply(a_topic_table(), a_table("log.others", bucket="lake"))


def test_each_table_converts_its_own_spool_objects(world: World) -> None:
    world.apply(a_topic_table(), a_topic_table("log.audit"))
    first, second = some_rows(3, utc(NOON)), some_rows(2, utc(NOON))
    spool(world, first)
    spool(world, second, table="log.audit")
    assert world.stream(NOON).rows_out == 5
    world.catalog(NOON)
    assert world.ids("log.events") == sorted(row["id"] for row in first)
    assert world.ids("log.audit") == sorted(row["id"] for row in second)


def test_spool_objects_of_a_stopped_stream_wait_and_are_told_by_their_topic(world: World) -> None:
    world.apply(a_topic_table())
    spool(world, some_rows(1, utc(NOON)))
    world.apply(a_topic_table(stream="topic: app, enabled: false"))
    assert world.stream(NOON).rows_out == 0
    with world.context.database.begin() as connection:
        (stopped,) = count_stopped(connection, [1])
    assert stopped.sentence == (
        "1 object waits at kafka://main/app, as stream events is stopped: `enabled: true` in the table file has them "
        "converted"
    )


def test_spool_objects_of_a_stream_that_left_the_file_are_still_converted(world: World) -> None:
    world.apply(a_topic_table())
    rows = some_rows(2, utc(NOON))
    spool(world, rows)
    world.apply(a_table())
    assert world.stream(NOON).rows_out == 2
    world.catalog(NOON)
    assert world.ids() == sorted(row["id"] for row in rows)


def test_a_spool_object_that_was_given_up_is_found_by_its_key(world: World) -> None:
    world.apply(a_topic_table())
    key = spool(world, some_rows(1, utc(NOON)))
    with world.context.database.begin() as connection:
        for bucket in ("lake", None):
            assert staging_objects.find_ids(connection, (bucket, key), None) == {"lake": [1]}
        assert staging_objects.find_ids(connection, ("staging", key), None) == {}


def test_an_erasure_is_proved_while_the_spool_still_has_its_messages(world: World) -> None:
    """They are staging objects: they stay, and the erasure names them."""
    world.apply(a_topic_table())
    rows = some_rows(3, utc(NOON))
    key = spool(world, rows)
    world.stream(NOON)
    world.catalog("2026-03-02T00:10")
    run_erase(world.context, "log.events", f"id = {rows[0]['id']}", rows=1)
    world.catalog("2026-03-02T02:00")
    later = datetime.now(timezone.utc) + timedelta(days=10)
    for now in (None, *[later] * 20):  # a run of garbage collection deletes a tenth
        assert continue_erasures(world.context, now=now, forced=True).errors == ()
    (erasure,) = read_erasures(world.context, world.context.choose_tables(None))
    assert (erasure.state, erasure.rows_erased) == ("proved", 1)
    assert [source for source, _ in sources_of(world.context, erasure.erasure_id)] == [f"s3://lake/{key}"]
