"""A broker of Apache Kafka for tests: its topics, its producers, and its sudden ends."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from prism_assets.kafka.cluster import KafkaClusters
from prism_local import jars, kafka_jars, processes
from prism_local.faults import StackError
from prism_local.layout import Layout
from prism_local.stack import LocalStack

_NUMBERS = itertools.count(1)
_SECONDS = 30.0
Message = tuple[int, bytes | None, bytes | None]
"""Partition, key and value."""


def need_kafka(home: Path) -> None:
    """Skips a test where the jars of a broker cannot be fetched. `home` is the folder of its stack."""
    try:
        jars.ensure_all(kafka_jars.JARS, Layout(home))
    except StackError as error:
        pytest.skip(f"there is no Kafka here: {error}")


class Broker:
    """One broker in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self._stack = LocalStack(root / ".prism")
        self._stack.up(services={"kafka"})
        self.environment: Mapping[str, str] = dict(self._stack.environment())

    @property
    def servers(self) -> str:
        """Host and port."""
        return self.environment["PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS"]

    @property
    def topics_folder(self) -> Path:
        """The folder with the logs of partitions."""
        return self._stack.place.data / "kafka"

    def clusters(self) -> KafkaClusters:
        """The clusters as a worker finds them in its environment."""
        return KafkaClusters({"PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS": self.servers})

    def close(self) -> None:
        self._stack.reset()

    def kill(self) -> None:
        """Ends the broker with SIGKILL."""
        for process in processes.marked(self._stack.place.marker):
            os.kill(process.pid, signal.SIGKILL)
            process.wait(_SECONDS)

    def stop(self) -> None:
        """Ends the broker orderly."""
        self._stack.down()

    def start(self) -> None:
        """Starts the broker again, at its former port."""
        self._stack.up(services={"kafka"})
        assert self._stack.environment()["PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS"] == self.servers
        until(lambda: bool(self._admin.list_topics(timeout=_SECONDS).brokers))

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def new_topic(self, partitions: int = 1, **config: str) -> str:
        """Creates a topic with a name of its own."""
        name = f"app.events-{next(_NUMBERS)}"
        self.create(name, partitions, **config)
        return name

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        """Creates a topic, and waits until its brokers know it."""
        made = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        self._admin.create_topics([made])[name].result(_SECONDS)
        until(lambda: len(self._admin.list_topics(name, timeout=_SECONDS).topics[name].partitions) == partitions)

    def delete(self, name: str) -> None:
        """Deletes a topic, and waits until it is gone."""
        self._admin.delete_topics([name])[name].result(_SECONDS)
        until(lambda: name not in self._admin.list_topics(timeout=_SECONDS).topics)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(_SECONDS)
        until(lambda: len(self._admin.list_topics(name, timeout=_SECONDS).topics[name].partitions) == partitions)

    def forget_before(self, name: str, partition: int, offset: int) -> None:
        """Deletes the first messages of a partition, as retention does."""
        place = TopicPartition(name, partition, offset)
        next(iter(self._admin.delete_records([place]).values())).result(_SECONDS)

    def topic_id(self, name: str) -> str:
        described = self._admin.describe_topics(TopicCollection([name]))[name].result(_SECONDS)
        return str(described.topic_id)

    def producer(self, **config: Any) -> Producer:
        return Producer(
            {"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 5, "message.max.bytes": 20 << 20, **config}
        )

    def send(self, name: str, messages: Iterable[Message], **more: Any) -> None:
        """Sends messages and waits until the broker has them."""
        producer = self.producer()
        for partition, key, value in messages:
            producer.produce(name, value, key=key, partition=partition, **more)
        assert producer.flush(_SECONDS) == 0

    def consumer(self, **config: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "naive",
                "log_level": 0,
                "enable.auto.commit": False,
                **config,
            }
        )


def until(condition: Callable[[], bool], seconds: float = _SECONDS) -> None:
    """Waits for a condition. Fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def events(numbers: Sequence[int], partition: int | None = None, partitions: int = 1) -> list[Message]:
    """Returns messages with these ids and the current time, over some partitions."""
    now = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    return [
        (
            number % partitions if partition is None else partition,
            b"k%d" % number,
            json.dumps({"time": now, "id": number}).encode(),
        )
        for number in numbers
    ]
