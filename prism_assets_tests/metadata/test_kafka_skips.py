"""Decisions of people about topics: what they change, and whom they keep from committing."""

from __future__ import annotations

import pytest

from prism_assets.domain.errors import InvariantBroken, LeaseLost
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.metadata.database import Database
from prism_assets.metadata.kafka import offset_ranges, skips, topics
from prism_assets.metadata.kafka.audit import load_skipped
from prism_assets.metadata.kafka.offset_ranges import ReadRange
from prism_assets.stages.apply.plan import plan_apply
from prism_assets.stages.apply.run import execute_apply
from prism_assets_tests.metadata.rows import NOON
from prism_assets_tests.topics import TopicRows, a_topic_table


@pytest.fixture
def topic(database: Database) -> TopicRows:
    with database.begin() as connection:
        execute_apply(connection, plan_apply([parse_table_file(a_topic_table(), "t.yaml")], [], []), NOON)
    made = TopicRows.register(database, starts=(0, 0))
    made.read(10)
    return made


def skip(topic: TopicRows, to_offset: int) -> None:
    with topic.database.begin() as connection:
        assert skips.lock_partition(connection, topic.topic_pk, 0) is not None
        skips.skip(connection, topic.topic_pk, 0, to_offset, "ada@desk: retention")


def ranges(topic: TopicRows) -> list[tuple[int | None, int, str]]:
    found = topic.sql(
        "SELECT from_offset, to_offset, kind FROM prism_offset_ranges WHERE prism_topic_id = :topic AND partition = 0 "
        "ORDER BY to_offset"
    )
    return [tuple(row) for row in found]


def a_read_range(topic: TopicRows) -> ReadRange:
    """The next ten messages, as the worker has them that reads the partition."""
    ((token, position),) = topic.sql(
        "SELECT CAST(lease_token AS text), next_offset FROM prism_topic_partitions "
        "WHERE prism_topic_id = :topic AND partition = 0"
    )
    return ReadRange(
        partition=0,
        token=token,
        from_offset=position,
        to_offset=position + 10,
        records=10,
        leader_epoch=3,
        last_message_time=None,
    )


def commit(topic: TopicRows, read: ReadRange) -> None:
    """Commits a range without its object, as a flush does."""
    with topic.database.begin() as connection:
        offset_ranges.hold_topic(connection, topic.topic_pk)
        offset_ranges.lock_positions(connection, topic.topic_pk, [read])
        offset_ranges.append(connection, topic.topic_pk, [read], None)


def test_a_skip_is_a_range_of_its_own_and_the_partition_is_read_again(topic: TopicRows) -> None:
    topic.set("leader_epoch = 5")
    topic.stop()
    skip(topic, 25)
    assert ranges(topic) == [(None, 0, "start"), (0, 10, "read"), (10, 25, "skipped")]
    ((position, epoch, state, error),) = topic.sql(
        "SELECT next_offset, leader_epoch, state, last_error FROM prism_topic_partitions "
        "WHERE prism_topic_id = :topic AND partition = 0"
    )
    assert (position, epoch, state, error) == (25, None, "reading", None)
    with topic.database.begin() as connection:
        (skipped,) = load_skipped(connection, [1])
    assert (skipped.count, skipped.reason) == (15, "ada@desk: retention")


def test_a_worker_with_messages_of_a_skipped_partition_commits_nothing(topic: TopicRows) -> None:
    read = a_read_range(topic)
    skip(topic, 25)
    with pytest.raises(LeaseLost):
        commit(topic, read)
    assert ranges(topic)[-1] == (10, 25, "skipped")


def test_a_flush_that_comes_first_moves_the_position_of_the_skip(topic: TopicRows) -> None:
    commit(topic, a_read_range(topic))
    skip(topic, 25)
    assert ranges(topic)[-2:] == [(10, 20, "read"), (20, 25, "skipped")]


def test_a_skip_to_the_position_ends_the_stop_without_a_range(topic: TopicRows) -> None:
    topic.stop()
    skip(topic, 10)
    assert ranges(topic) == [(None, 0, "start"), (0, 10, "read")]
    assert topic.sql("SELECT 1 FROM prism_topic_partitions WHERE state = 'stopped'") == []


def test_the_database_refuses_a_range_that_leaves_a_gap(topic: TopicRows) -> None:
    topic.set("next_offset = 12")
    with pytest.raises(InvariantBroken):
        skip(topic, 25)


def test_after_a_restart_the_former_topic_takes_no_messages_and_the_next_begins_as_said(topic: TopicRows) -> None:
    read = a_read_range(topic)
    with topic.database.begin() as connection:
        assert skips.end_topic(connection, topic.topic_pk, "latest")
        assert not skips.end_topic(connection, topic.topic_pk, "earliest")
        assert skips.lock_partition(connection, topic.topic_pk, 0) is None
    with pytest.raises(LeaseLost):
        commit(topic, read)
    with topic.database.begin() as connection:
        (stream,) = topics.load_topic_streams(connection).values()
    assert (stream.topic_pk, stream.next_start) == (None, "latest")
    again = TopicRows.register(topic.database, topic_id="T2")
    assert again.topic_pk != topic.topic_pk
