"""A join table whose streams read topics: changes of all partitions become records, in the order of their offsets."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

from prism_assets_tests.kafka.broker import Broker, Message
from prism_assets_tests.kafka.lake import TopicLake
from prism_assets_tests.requests import Requests

TABLE = """
schema: log
table: request
streams:
  - {{name: front, topic: {front}, flush: {{seconds: 0.1}}, group: front}}
  - {{name: back, topic: {back}, flush: {{seconds: 0.1}}, group: back, tombstones: row, delete: "status is null"}}
columns:
  - {{name: request_id, type: string, source: ["@key", request_id]}}
  - {{name: time, type: timestamp, source: [time, "@timestamp"]}}
  - {{name: position, type: bigint, source: "@offset"}}
  - {{name: page, type: string, group: front}}
  - {{name: status, type: bigint, group: back}}
key: [request_id]
groups: {{front: null, back: {{sequence: [position], owner: true}}}}
window: 3h
lateness: 1h
accept: {{from: arrival}}
"""


def change(key: str, partition: int, *, minutes: int = 0, **fields: Any) -> Message:
    """Returns a message about a record, of now or of some minutes ago."""
    time = datetime.now(timezone.utc) - timedelta(minutes=minutes)
    return partition, key.encode(), json.dumps({"time": f"{time:%Y-%m-%dT%H:%M:%SZ}", **fields}).encode()


def test_the_last_message_of_a_key_wins_whatever_its_time_and_flush(lake: TopicLake, broker: Broker) -> None:
    front, back = broker.new_topic(2), broker.new_topic(2)
    lake.world.apply(TABLE.format(front=front, back=back))
    broker.send(front, [change("a", 0, page="/a"), change("b", 1, page="/b"), change("c", 1, page="/c")])
    broker.send(back, [change("a", 0, status=200), change("b", 1, status=500)])
    spooler = lake.spool()
    assert records(lake) == [("a", "/a", 200), ("b", "/b", 500)]

    # Later offsets win in the same object and in another one, also with an earlier time. A tombstone deletes.
    changes = [change("b", 1, status=201), change("b", 1, minutes=10, status=404), change("c", 1, status=204)]
    broker.send(back, [*changes, (0, b"a", None)])
    lake.spool(spooler)
    assert records(lake) == [("b", "/b", 404), ("c", "/c", 204)]


def records(lake: TopicLake) -> list[tuple[Any, ...]]:
    """Converts and folds what the spooler left. Returns the records that a reader sees."""
    lake.world.stream(lake.now())
    Requests(lake.world).fold(lake.now())
    lake.world.catalog(lake.now())
    return lake.world.query("SELECT request_id, page, status FROM log.request ORDER BY request_id")
