"""Topics of a benchmark: a broker's topics, and a producer of log rows in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Sequence
from datetime import datetime, timezone

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.platform import log_lines

_SECONDS = 60.0
_DISTINCT = 20_000


def create_topics(servers: str, names: Sequence[str], partitions: int) -> None:
    """Creates topics, and waits for them."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    made = admin.create_topics([NewTopic(name, partitions, 1) for name in names])
    for name in names:
        made[name].result(_SECONDS)
    deadline = time.monotonic() + _SECONDS
    while not set(names) <= admin.list_topics(timeout=_SECONDS).topics.keys():
        if time.monotonic() > deadline:
            raise TimeoutError("the broker does not know its new topics")
        time.sleep(0.1)


def fill(servers: str, topic: str, messages: int, partitions: int) -> int:
    """Sends log rows as fast as the broker takes them. Returns the bytes of their values."""
    lines = log_lines(_DISTINCT, 1).splitlines()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "compression.type": "zstd",
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    size = 0
    for number in range(messages):
        line = lines[number % _DISTINCT]
        size += len(line)
        while True:
            try:
                producer.produce(topic, line, key=b"%d" % (number % 977), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 5_000 == 0:
            producer.poll(0)
    if producer.flush(_SECONDS):
        raise TimeoutError("the broker does not take the messages")
    return size


def run_traffic(servers: str, topics: Sequence[str], rate: int, seconds: float, partitions: int) -> None:
    """Sends `rate` messages a second to each topic for `seconds`, from a process of its own."""
    process = multiprocessing.get_context("spawn").Process(
        target=_send, args=(servers, list(topics), rate, seconds, partitions), daemon=True
    )
    process.start()
    process.join(seconds + _SECONDS)
    if process.exitcode != 0:
        process.kill()
        raise RuntimeError("the producer of the traffic failed")


def _send(servers: str, topics: list[str], rate: int, seconds: float, partitions: int) -> None:
    """Sends messages evenly, ten times a second. The id of a message is its number within its topic."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 5, "compression.type": "zstd"})
    begun, each = time.time(), max(1, rate // 10)
    for step in range(int(seconds * 10)):
        time.sleep(max(0.0, begun + step / 10 - time.time()))
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        for topic in topics:
            for number in range(step * each, (step + 1) * each):
                value = json.dumps(
                    {"time": now, "id": number, "path": f"/recipes/{number % 5000}/steps", "status": 200}
                )
                producer.produce(topic, value.encode(), key=b"k%d" % number, partition=number % partitions)
        producer.poll(0)
    if producer.flush(_SECONDS):
        raise SystemExit(1)
