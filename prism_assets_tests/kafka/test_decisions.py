"""Decisions of people, with a real broker: what `prism kafka` does, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from prism_assets.domain.errors import MissingTopic, WrongUse
from prism_assets.kafka.cluster import KafkaClusters
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.findings.topics import SKIPPED, TOPICS
from prism_assets.stages.kafka.restart import run_restart
from prism_assets.stages.kafka.skip import SkipReport, run_skip
from prism_assets.stages.kafka.status import TopicPartitionStatus, TopicStatus, read_topic_status
from prism_assets_tests.kafka.broker import Broker, events
from prism_assets_tests.kafka.lake import TopicLake, a_topic_table

TABLE = "log.events"


def a_topic(lake: TopicLake, messages: int) -> str:
    """A topic of the table with some messages, all of them read."""
    topic = lake.broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    lake.broker.send(topic, events(range(messages)))
    lake.spool().stop()
    return topic


def stopped(lake: TopicLake) -> str:
    """A topic whose position, 10, was deleted by retention: the first offset left is 40 of 60."""
    topic = a_topic(lake, 10)
    lake.broker.send(topic, events(range(10, 60)))
    lake.broker.forget_before(topic, 0, 40)
    spooler = lake.spooler()
    lake.turns(spooler, lambda: lake.positions()[0][2] == "stopped")
    spooler.stop()
    return topic


def skip(lake: TopicLake, to: str, *, partition: int = 0) -> SkipReport:
    return run_skip(lake.world.context, TABLE, partition=partition, to=to, reason="ada@desk: retention")


def kinds(lake: TopicLake) -> list[str]:
    found = read_findings(lake.world.context, None, [TOPICS, SKIPPED], now=datetime.now(timezone.utc))
    return [item.kind for item in found]


def status(lake: TopicLake) -> TopicStatus:
    (found,) = read_topic_status(lake.world.context)
    return found


def partition(lake: TopicLake) -> TopicPartitionStatus:
    (found,) = status(lake).partitions
    return found


def test_a_stopped_partition_goes_on_where_a_person_says_and_the_rest_is_named(lake: TopicLake) -> None:
    topic = stopped(lake)
    assert kinds(lake) == ["stopped_partition"]
    assert "--partition 0 --to earliest" in str(partition(lake).last_error)
    skipped = skip(lake, "earliest")
    assert str(skipped).endswith("goes on at offset 40; 30 offsets from 10 on were skipped")
    assert lake.ranges()[-1] == (10, 40, "skipped", 0)
    lake.spool()
    assert lake.convert() == [*range(10), *range(40, 60)]
    assert kinds(lake) == ["skipped_offsets"]
    report = run_doctor(lake.world.context)
    assert report.is_clean, report
    assert [note for note in report.notes if f"offsets 10 to 39 of partition 0 of topic {topic}" in note]


def test_a_skip_never_moves_back_and_not_beyond_the_log(lake: TopicLake) -> None:
    stopped(lake)
    for to, why in (
        ("5", "outside of the offsets that the brokers have, 40 to 60"),
        ("61", "outside of the offsets that the brokers have, 40 to 60"),
        ("-1", "is no place"),
        ("soon", "is no place"),
    ):
        with pytest.raises(WrongUse, match=why):
            skip(lake, to)
    with pytest.raises(WrongUse, match="has 1 partition"):
        skip(lake, "earliest", partition=1)
    skip(lake, "50")
    with pytest.raises(WrongUse, match="the position is 50, and it never moves back, to 40"):
        skip(lake, "earliest")
    with pytest.raises(WrongUse, match="the position is 50 already"):
        skip(lake, "50")


def test_a_worker_that_reads_a_skipped_partition_drops_what_it_has(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic).replace("seconds: 0.1", "seconds: 60"))
    spooler = lake.spool()
    broker.send(topic, events(range(20)))
    lake.turns(spooler, lambda: any(reading.size for reading in spooler._readings.values()))
    skip(lake, "latest")
    spooler.stop()
    assert lake.ranges()[-1] == (0, 20, "skipped", 0)
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events([20]))
    lake.spool(lake.spooler("b")).stop()
    assert lake.convert() == [20]


def test_a_recreated_topic_is_read_from_where_a_person_says(lake: TopicLake, broker: Broker) -> None:
    topic = a_topic(lake, 30)
    broker.delete(topic)
    with pytest.raises(MissingTopic, match="create it first"):
        run_restart(lake.world.context, TABLE, start="earliest")
    broker.create(topic)
    broker.send(topic, events(range(100, 110)))
    lake.spooler().turn()
    assert kinds(lake) == ["stopped_topic"]
    with pytest.raises(WrongUse, match="is another topic than the one that was read"):
        skip(lake, "latest")
    report = run_restart(lake.world.context, TABLE, start="latest")
    assert (report.topic_id, report.start) == (broker.topic_id(topic), "latest")
    spooler = lake.spool()
    broker.send(topic, events(range(110, 113)))
    lake.spool(spooler).stop()
    assert lake.convert() == [*range(30), 110, 111, 112]
    assert kinds(lake) == []


def test_a_topic_that_is_read_already_is_not_begun_again(lake: TopicLake) -> None:
    a_topic(lake, 5)
    with pytest.raises(WrongUse, match="would become rows twice"):
        run_restart(lake.world.context, TABLE, start="earliest")
    with pytest.raises(WrongUse, match="is no start"):
        run_restart(lake.world.context, TABLE, start="yesterday")
    assert lake.positions() == [(0, 5, "reading", None)]


def test_status_has_the_ends_of_the_brokers_or_else_those_of_the_workers(lake: TopicLake, broker: Broker) -> None:
    topic = a_topic(lake, 5)
    broker.send(topic, events(range(5, 12)))
    found = partition(lake)
    assert (found.next_offset, found.last_stable_offset, found.lag_offsets, found.first_offset) == (5, 12, 7, 0)
    assert status(lake).not_asked is None
    alone = replace(lake.world.context, kafka=KafkaClusters({}))
    (told,) = read_topic_status(alone)
    assert "there is no connection to the Kafka cluster main" in str(told.not_asked)
    assert told.partitions[0].next_offset == 5


def test_doctor_finds_a_position_beyond_the_end_of_the_log(lake: TopicLake) -> None:
    a_topic(lake, 5)
    lake.convert()
    with lake.world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind) "
            "SELECT prism_topic_id, partition, 5, 9, 'read' FROM prism_topic_partitions"
        )
        connection.exec_driver_sql("UPDATE prism_topic_partitions SET next_offset = 9")
    assert "position_beyond_end" in [item.kind for item in run_doctor(lake.world.context).findings]


def test_a_table_with_several_topics_wants_the_name_of_one(lake: TopicLake, broker: Broker) -> None:
    first, second = broker.new_topic(), broker.new_topic()
    both = a_topic_table(first).replace("streams:\n", f"streams:\n  - {{name: more, topic: {second}}}\n")
    lake.world.apply(both)
    lake.spool().stop()
    with pytest.raises(WrongUse, match="reads several topics: name one with --topic"):
        skip(lake, "latest")
    with pytest.raises(WrongUse, match="and not other"):
        run_skip(lake.world.context, TABLE, partition=0, to="latest", reason="x", topic="other")
    with pytest.raises(WrongUse, match="the position is 0 already"):
        run_skip(lake.world.context, TABLE, partition=0, to="latest", reason="x", topic=second)
