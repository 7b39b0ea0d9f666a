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
from prism_assets.kafka.spool import SpoolContent, SpoolPart, encode_spool
from prism_assets.metadata.kafka import offset_ranges
from prism_assets.metadata.kafka.offset_ranges import ReadRange, SpooledObject
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.sources import Source


@dataclass(frozen=True, kw_only=True)
class Flushed:
    """The messages and the object that one flush committed."""

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

    Raises MissingTopic if the topic was deleted or recreated since the messages were read: later messages may belong to
    either topic, so nothing is committed. Raises LeaseLost if another worker reads one of the partitions.
    """
    current = cluster.identities({source.topic.name}).get(source.topic.name)
    if current is None or current.ids != identity.ids:
        raise MissingTopic(f"{source.name} was deleted or recreated while it was read; nothing more was committed")
    filled = [part for part in parts if part.records]
    spooled = _write_object(context, source, identity, filled) if filled else None
    times = {} if spooled is None else dict(zip((part.place for part in filled), spooled.content.times, strict=True))
    with context.database.begin() as connection:
        offset_ranges.limit_waits(connection)
        stream_id = offset_ranges.hold_topic(connection, topic_pk)
        ranges = [_range_of(part, times.get(part.place)) for part in parts]
        offset_ranges.lock_positions(connection, topic_pk, ranges)
        number = (
            offset_ranges.register_object(connection, stream_id, topic_pk, spooled.object, ranges) if spooled else None
        )
        failpoint("spool.in_commit")
        offset_ranges.append(connection, topic_pk, ranges, number)
    failpoint("spool.after_commit")
    return Flushed(
        messages=sum(part.records for part in filled),
        objects=1 if spooled else 0,
        content_length=spooled.object.content_length if spooled else 0,
    )


@dataclass(frozen=True)
class _WrittenObject:
    """A spool object in the lake, that no row names yet."""

    object: SpooledObject
    content: SpoolContent


def _write_object(
    context: StageContext, source: Source, identity: TopicIdentity, parts: Sequence[SpoolPart]
) -> _WrittenObject:
    """Writes a spool object. The key contains a hash of the content, so a repetition finds the same bytes."""
    spool = encode_spool(source.topic.cluster, identity, parts)
    first, now, digest = parts[0], datetime.now(timezone.utc), hashlib.sha256(spool.content).hexdigest()
    name = spool_name(identity.topic_id, first.place.partition, first.from_offset, digest)
    key = context.lake.keys(source.table).spool(source.topic, min(spool.earliest or now, now).date(), name)
    context.stores.put_new(context.lake.bucket, key, spool.content)
    failpoint("spool.after_put")
    size = len(spool.content)
    return _WrittenObject(SpooledObject(bucket=context.lake.bucket, key=key, content_length=size, put_time=now), spool)


def _range_of(part: SpoolPart, times: tuple[datetime, datetime] | None) -> ReadRange:
    return ReadRange(
        partition=part.place.partition,
        token=part.token,
        from_offset=part.from_offset,
        to_offset=part.to_offset,
        records=part.records,
        leader_epoch=part.leader_epoch,
        last_message_time=times[1] if times else None,
    )
