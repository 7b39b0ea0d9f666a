"""The broker of Kafka that the local stack starts where it is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from prism_assets_tests.kafka.broker import need_kafka
from prism_assets_tests.local.test_stack import status_of
from prism_local.stack import SERVERS, LocalStack

TOPIC = "app.events"
LONG = 15 << 20


@pytest.fixture
def kafka(stack: LocalStack) -> LocalStack:
    """The stack with a running broker. Skips the test where its jars cannot be fetched."""
    need_kafka(stack.place.root)
    stack.up(services={"kafka"})
    return stack


def settings(stack: LocalStack) -> dict[str, Any]:
    return {"bootstrap.servers": stack.environment()["PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS"]}


def test_a_broker_starts_on_request_and_keeps_topics_and_messages(kafka: LocalStack) -> None:
    assert status_of(kafka, "kafka").state == "running"
    assert "kafka" not in SERVERS
    admin = AdminClient(settings(kafka))
    cluster = admin.list_topics(timeout=30).cluster_id
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    producer = Producer(settings(kafka) | {"message.max.bytes": 20 << 20})
    producer.produce(TOPIC, b"x" * LONG, partition=1)
    assert producer.flush(60) == 0

    assert kafka.down().stopped == ("kafka",)
    kafka.up(services={"kafka"})
    assert AdminClient(settings(kafka)).list_topics(timeout=30).cluster_id == cluster
    consumer = Consumer(settings(kafka) | {"group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 1, 0)])
        (message,) = consumer.consume(1, 60)
        assert (message.error(), message.offset(), message.value()) == (None, 0, b"x" * LONG)
    finally:
        consumer.close()
