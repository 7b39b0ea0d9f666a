"""Spool objects as a worker leaves them: in the lake, registered with their offsets, without a broker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

from sqlalchemy import Connection, text

from prism_assets.domain.files.keys import spool_name
from prism_assets.domain.streams.topic import Topic
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets_tests.builders import a_table
from prism_assets_tests.kernels.messages.builders import AMessage, a_spool_object
from prism_assets_tests.world import World

DAY = date(2026, 3, 1)
TOPIC_ID = "q2YkHhwTQ1a"


def a_topic_table(name: str = "log.events", stream: str = "topic: app", **more: Any) -> str:
    """Returns a table file that reads a topic."""
    return a_table(name, stream=stream, **more)


def table_of(world: World, name: str = "log.events") -> TableDefinition:
    """Returns the definition in force."""
    (table,) = world.context.choose_tables([name])
    return table


def put(world: World, rows: Sequence[Any], offset: int = 0, *, table: str = "log.events", partition: int = 0) -> str:
    """Puts a spool object into the lake, as a worker does before its commit. Returns the key.

    Rows are lines, or whole messages.
    """
    found = table_of(world, table)
    topic = next(stream.topic for stream in found.streams if stream.topic)
    body = a_spool_object(*_messages(rows, offset, partition))
    name = spool_name(TOPIC_ID, partition, offset, hashlib.sha256(body).hexdigest())
    key = world.context.lake.keys(found).spool(topic, DAY, name)
    path = world.root / "buckets" / "lake" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return key


def _messages(rows: Sequence[Any], offset: int, partition: int) -> Iterator[AMessage]:
    time = int(datetime(2026, 3, 1, 12, tzinfo=timezone.utc).timestamp() * 1000)
    for at, row in enumerate(rows, offset):
        message = row if isinstance(row, AMessage) else AMessage(at, json.dumps(row).encode(), milliseconds=time)
        yield replace(message, at=at, of_partition=partition)


def commit(
    world: World,
    key: str | None,
    records: int,
    *,
    to: int,
    table: str = "log.events",
    partition: int = 0,
    put_time: datetime | None = None,
) -> int | None:
    """Registers a spool object, or None for a range without records, up to the offset `to`. Returns its id."""
    found = table_of(world, table)
    (topic,) = [stream.topic for stream in found.streams if stream.topic]
    with world.context.database.begin() as connection:
        number = _topic(connection, found.table_id, topic, partition)
        place = {"topic": number, "partition": partition, "to": to, "records": records}
        object_id = None
        if key is not None:
            values = {"key": key, "table": found.table_id, "bucket": topic.bucket, "prefix": topic.key_prefix}
            time = put_time or datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
            length = (world.root / "buckets" / "lake" / key).stat().st_size
            object_id = connection.execute(text(_REGISTER), {**values, "length": length, "time": time}).scalar_one()
        connection.execute(text(_APPEND), {**place, "object": object_id})
        connection.execute(text(_MOVE), place)
    return object_id


def spool(world: World, rows: Sequence[Any], offset: int = 0, **more: Any) -> str:
    """Puts and registers a spool object that begins at an offset. Returns its key."""
    place = {name: more[name] for name in ("table", "partition") if name in more}
    key = put(world, rows, offset, **place)
    commit(world, key, len(rows), to=offset + len(rows), **more)
    return key


def _topic(connection: Connection, table_id: int, topic: Topic, partition: int) -> int:
    values = {"table": table_id, "bucket": topic.bucket, "prefix": topic.key_prefix, "name": topic.name}
    connection.execute(text(_TOPIC), {**values, "id": TOPIC_ID})
    number = int(connection.execute(text(_NUMBER), values).scalar_one())
    for statement in (_PARTITION, _START):
        connection.execute(text(statement), {"topic": number, "partition": partition})
    return number


_TOPIC = """
INSERT INTO prism_topics (prism_stream_id, cluster_id, topic_id, topic_name)
SELECT prism_stream_id, 'cluster', :id, :name FROM prism_streams
WHERE prism_table_id = :table AND bucket_name = :bucket AND key_prefix = :prefix
ON CONFLICT DO NOTHING
"""
_NUMBER = """
SELECT prism_topic_id FROM prism_topics JOIN prism_streams USING (prism_stream_id)
WHERE prism_table_id = :table AND bucket_name = :bucket AND key_prefix = :prefix
"""
_PARTITION = """
INSERT INTO prism_topic_partitions (prism_topic_id, partition, next_offset) VALUES (:topic, :partition, 0)
ON CONFLICT DO NOTHING
"""
_START = """
INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind)
VALUES (:topic, :partition, NULL, 0, 'start') ON CONFLICT DO NOTHING
"""
_REGISTER = """
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length, send_time,
    first_receive_time)
SELECT prism_stream_id, prism_table_id, 'lake', :key, :length, :time, :time FROM prism_streams
WHERE prism_table_id = :table AND bucket_name = :bucket AND key_prefix = :prefix
RETURNING prism_staging_object_id
"""
_APPEND = """
INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind, prism_staging_object_id,
    records)
SELECT :topic, :partition, next_offset, :to, 'read', :object, :records FROM prism_topic_partitions
WHERE prism_topic_id = :topic AND partition = :partition
"""
_MOVE = """
UPDATE prism_topic_partitions SET next_offset = :to WHERE prism_topic_id = :topic AND partition = :partition
"""
