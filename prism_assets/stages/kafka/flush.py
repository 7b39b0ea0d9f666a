"""Makes messages durable: a spool object, and then its offsets and its staging object in one transaction.

Deaths are harmless. Before the transaction there is at most an object that no row names: gc removes it, and the next
reader begins at the committed offset. The transaction has all or nothing. After it the object waits for Stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from prism_assets.domain.errors import MissingTopic
from prism_assets.domain.files.keys import spool_name
from prism_assets.failpoints import failpoint
from prism_assets.kafka.cluster import KafkaCluster, TopicIdentity
from prism_assets.kafka.spool import SpoolPart, encode_spool
from prism_assets.metadata.kafka import offset_ranges
from prism_assets.metadata.kafka.offset_ranges import ReadRange, SpooledObject
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.sources import Source


@dataclass(frozen=True, kw_only=True)
class Flushed:
    """What one flush made durable."""

    messages: int = 0
    objects: int = 0
    content_length: int = 0


def flush(
    context: StageContext,
    cluster: KafkaCluster,
    source: Source,
    topic_pk: int,
    identity: TopicIdentity,
    parts: Sequence[SpoolPart],
) -> Flushed:
    """Writes the messages of some partitions of one topic, and commits their offsets.

    Raises MissingTopic if the topic is another one than the messages' by now: whatever was read since may belong to
    either, so nothing is committed. Raises LeaseLost if another worker reads one of the partitions.
    """
    current = cluster.identities({source.topic.name}).get(source.topic.name)
    if current is None or (current.cluster_id, current.topic_id) != (identity.cluster_id, identity.topic_id):
        raise MissingTopic(f"{source.name} is gone or another one while it is read; nothing more was committed")
    filled = [part for part in parts if part.messages]
    spooled = _put(context, source, identity, filled) if filled else None
    with context.database.begin() as connection:
        offset_ranges.limit_waits(connection)
        stream_id = offset_ranges.hold_topic(connection, topic_pk)
        ranges = [_range_of(part) for part in parts]
        offset_ranges.lock_positions(connection, topic_pk, ranges)
        number = offset_ranges.register_object(connection, stream_id, topic_pk, spooled, ranges) if spooled else None
        failpoint("spool.in_commit")
        offset_ranges.append(connection, topic_pk, ranges, number)
    failpoint("spool.after_commit")
    return Flushed(
        messages=sum(len(part.messages) for part in filled),
        objects=1 if spooled else 0,
        content_length=spooled.content_length if spooled else 0,
    )


def _put(context: StageContext, source: Source, identity: TopicIdentity, parts: Sequence[SpoolPart]) -> SpooledObject:
    """Writes a spool object. Its key has its content's hash, so a repetition finds the same bytes."""
    body = encode_spool(source.topic.cluster, identity, parts)
    first, now = parts[0], datetime.now(timezone.utc)
    earliest = min((time for part in parts for time in part.times), default=now)
    name = spool_name(identity.topic_id, first.place.partition, first.from_offset, hashlib.sha256(body).hexdigest())
    key = context.lake.keys(source.table).spool(source.topic, min(earliest, now).date(), name)
    context.stores.put_new(context.lake.bucket, key, body)
    failpoint("spool.after_put")
    return SpooledObject(bucket=context.lake.bucket, key=key, content_length=len(body), put_time=now)


def _range_of(part: SpoolPart) -> ReadRange:
    return ReadRange(
        partition=part.place.partition,
        token=part.token,
        from_offset=part.from_offset,
        to_offset=part.to_offset,
        records=len(part.messages),
        leader_epoch=part.leader_epoch,
        last_message_time=max(part.times, default=None),
    )
