"""What one topic, one cluster or one worker cannot do holds up no other."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from prism_assets.domain.errors import KafkaUnavailable
from prism_assets.kafka.cluster import KafkaCluster
from prism_assets.metadata import leases
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.kafka import spooler as spooling
from prism_assets_tests.kafka.broker import Broker, events
from prism_assets_tests.kafka.lake import TopicLake, a_topic_table


def test_partitions_that_their_worker_cannot_read_stay_with_another(lake: TopicLake, broker: Broker) -> None:
    """The worker a lives, and has no connection to the cluster."""
    lake.world.apply(a_topic_table(broker.new_topic(4)))
    with lake.world.context.database.begin() as connection:
        for number, name in enumerate("ab"):
            leases.take(connection, LeaseKind.WORKER, [number], name, 15.0)
    spooler = lake.spooler("b")
    spooler._look()
    assert spooler.figures.partitions == 2
    spooler._start -= 60.0
    lake.rows("UPDATE prism_topics SET register_time = register_time - interval '1 minute' RETURNING 1")
    found = []
    for _ in range(3):
        spooler._look()
        found.append(spooler.figures.partitions)
    assert found == [4, 4, 4]
    spooler._idle_until = dict.fromkeys(spooler._idle_until, 0.0)
    spooler._look()
    assert spooler.figures.partitions == 2  # a may have its connection by now


def test_a_topic_without_the_right_to_it_leaves_the_others_readable(
    lake: TopicLake, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, secret = broker.new_topic(), broker.new_topic()
    lake.world.apply(a_topic_table(topic), a_topic_table(secret, "log.audit"))
    broker.send(topic, events(range(10)))
    spooler = lake.spooler()
    spooler._cluster.identities({topic})  # opens the connection
    admin = spooler._cluster._admin

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(admin, name)

        def describe_topics(self, *given: Any, **more: Any) -> dict[str, Future[Any]]:
            answers: dict[str, Future[Any]] = admin.describe_topics(*given, **more)
            if secret in answers:
                answers[secret] = Future()
                answers[secret].set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
            return answers

    monkeypatch.setattr(spooler._cluster, "_admin", Refusing())
    lake.spool(spooler)
    assert lake.convert() == list(range(10))
    assert any(secret in error and "ACLs" in error for error in spooler.errors)
    (told,) = lake.rows("SELECT last_error FROM prism_stream_scans WHERE last_error IS NOT NULL")
    assert secret in told.last_error


def test_partitions_without_a_leader_hold_up_no_other_topic_and_no_other_partition(
    lake: TopicLake, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = broker.new_topic(), broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    spooler = lake.spooler()
    spooler._look()
    lake.world.apply(a_topic_table(topic), a_topic_table(other, "log.audit"))
    broker.add_partitions(topic, 2)
    broker.send(topic, events(range(10)))

    def refuse(*_given: Any) -> Any:
        raise KafkaUnavailable("no leader")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaCluster, "first_offsets", refuse)
        spooler._look()
        lake.spool(spooler)
        assert lake.positions() == [(0, 10, "reading", None)]
        assert sum("cannot be begun: no leader" in error for error in spooler.errors) >= 2
    spooler._look()
    assert [position[:2] for position in lake.positions()] == [(0, 10), (1, 0), (0, 0)]
    assert not lake.rows("SELECT 1 FROM prism_stream_scans WHERE last_error IS NOT NULL")


def test_streams_together_stay_within_the_memory_while_nothing_can_be_flushed(
    lake: TopicLake, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = broker.new_topic(), broker.new_topic()
    lake.world.apply(a_topic_table(first), a_topic_table(second, "log.audit"))

    def refuse(*_given: Any) -> Any:
        raise KafkaUnavailable("silent")

    spooler = lake.spooler()
    with monkeypatch.context() as patch:
        patch.setattr(spooling, "flush", refuse)
        patch.setattr(spooling, "MOST_BYTES", 20_000)
        broker.send(first, events(range(400)))
        lake.turns(spooler, spooler._is_full)
        sizes = []
        for _ in range(3):
            broker.send(second, events(range(20)))
            for _ in range(10):
                spooler.turn()
            sizes.append(sum(reading.size for reading in spooler._readings.values()))
        assert sizes == [sizes[0]] * 3
    lake.spool(spooler)
    assert sorted(position[1] for position in lake.positions()) == [60, 400]
    assert lake.convert() == list(range(400))


def test_leases_are_renewed_between_flushes(lake: TopicLake, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(10)))
    spooler = lake.spooler()
    done: list[str] = []
    monkeypatch.setattr(spooler, "_beat", lambda: done.append("beat"))
    monkeypatch.setattr(spooler, "_flush", lambda _reading: done.append("flush"))
    lake.turns(spooler, lambda: "flush" in done)
    done.clear()
    spooler._next_beat = 0.0
    spooler._flush_due()
    assert done == ["beat", "flush"]
