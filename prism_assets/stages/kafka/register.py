"""Compares topics with what was registered, and registers new topics and partitions.

The brokers' id identifies a topic. A recreated topic has another id and begins at offset 0 again. A client would find
the new topic by name, and read on in the middle without an event.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from prism_assets.domain.errors import KafkaUnavailable, PrismError, TransientError
from prism_assets.domain.streams.topic import EARLIEST
from prism_assets.kafka.cluster import KafkaCluster, TopicIdentity
from prism_assets.metadata.intake import stream_scans
from prism_assets.metadata.kafka import topics
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.sources import Source


@dataclass
class Looks:
    """A look at the topics of one cluster."""

    readable: dict[int, TopicIdentity]
    """The identities of topics found as they were registered, by stream."""
    unreadable: dict[int, str]
    """Why other topics cannot be read, by stream. A person decides, or creates the topic."""
    faults: list[str] = field(default_factory=list)
    """Why new partitions of other topics, which are read, wait."""
    has_registered: bool = False
    """Topics or partitions were registered."""


def look_at_topics(context: StageContext, cluster: KafkaCluster, sources: Sequence[Source], now: datetime) -> Looks:
    """Asks the brokers for topics, registers new topics and partitions, and stores changed errors.

    A missing right and partitions without a leader concern one topic and stop no other. Raises KafkaUnavailable and
    AccessDenied of the whole cluster.
    """
    if not sources:
        return Looks({}, {})
    denied: dict[str, PrismError] = {}
    found = cluster.identities({source.topic.name for source in sources}, denied)
    looks = Looks({}, {})
    silent: KafkaUnavailable | None = None
    # In any order, because after one topic without offsets no other is registered: each would take seconds.
    for source in random.sample(sources, len(sources)):
        identity = found.get(source.topic.name)
        reason = str(denied[source.topic.name]) if source.topic.name in denied else _difference(source, identity)
        if identity is not None and reason is None and identity.partitions > source.known.partitions:
            if silent is None:
                try:
                    reason = _register(context, cluster, source, identity)
                    looks.has_registered = True
                except KafkaUnavailable as error:
                    silent = error
            if silent is not None:
                why = f"{source.name} has partitions that cannot be begun: {silent}"
                if source.known.topic_pk is None:
                    reason = why
                else:
                    looks.faults.append(why)
        if identity is not None and reason is None:
            looks.readable[source.stream_id] = identity
        else:
            looks.unreadable[source.stream_id] = reason or _missing(source)
    _note(context, sources, looks, now)
    return looks


def note_fault(context: StageContext, sources: Sequence[Source], error: PrismError, now: datetime) -> None:
    """Stores a cluster's refusal, for a person. For a silent cluster, which may come back, stores the attempt alone."""
    reason = None if isinstance(error, TransientError) else str(error)
    with context.database.begin() as connection:
        for source in sorted(sources, key=lambda item: item.stream_id):
            stream_scans.save_attempt(connection, source.stream_id, now, reason)


def _difference(source: Source, identity: TopicIdentity | None) -> str | None:
    """Returns how the brokers' topic differs from the registered topic, or None."""
    known = source.known
    if known.topic_pk is None:
        return None
    restart = f"decide with `prism kafka restart {source.table.name} --from earliest`"
    if identity is None:
        return (
            f"{source.name} was deleted: rows read before stay; create it again and {restart}, or remove the stream "
            "from the table file"
        )
    if identity.cluster_id != known.cluster_id:
        return (
            f"{source.name} is in another cluster now: {known.cluster_id} was read, and {identity.cluster_id} answers; "
            f"correct the connection, or {restart}"
        )
    if identity.topic_id != known.topic_id:
        return (
            f"{source.name} was recreated: the topic {known.topic_id} was read, and {identity.topic_id} is there; "
            f"nothing of it is read; {restart}"
        )
    return None


def _missing(source: Source) -> str:
    return f"{source.name} does not exist: create the topic, or correct its name in the table file"


def _register(context: StageContext, cluster: KafkaCluster, source: Source, identity: TopicIdentity) -> str | None:
    """Registers a topic or new partitions. Returns an obstacle to reading, or None.

    Partitions added later begin at their first offset, also with `start: latest`, because their messages came after
    the start.
    """
    known = source.known
    new = range(known.partitions, identity.partitions)
    start = known.next_start or source.topic.start if known.topic_pk is None else EARLIEST
    places = [source.place(partition) for partition in new]
    offsets = cluster.first_offsets(places, start)
    if len(offsets) < len(places):
        return f"{source.name} has partitions without a leader"
    with context.database.begin() as connection:
        is_registered = topics.register(
            connection,
            source.stream_id,
            cluster_id=identity.cluster_id,
            topic_id=identity.topic_id,
            topic_name=source.topic.name,
            first_offsets={place.partition: offset for place, offset in offsets.items()},
        )
    return None if is_registered else f"{source.name} changed while it was registered"


def _note(context: StageContext, sources: Sequence[Source], looks: Looks, now: datetime) -> None:
    """Stores new errors, and clears earlier ones. A look without a change writes nothing."""
    changed = list(_changed(sources, looks))
    if not changed:
        return
    with context.database.begin() as connection:
        for source, reason in sorted(changed, key=lambda item: item[0].stream_id):
            if source.known.topic_pk is None:
                if reason is not None:
                    stream_scans.save_attempt(connection, source.stream_id, now, reason)
            elif reason is not None:
                topics.save_error(connection, source.known.topic_pk, reason)
            else:
                topics.clear_error(connection, source.known.topic_pk)
            if reason is None:
                stream_scans.save_look(connection, source.stream_id, now)


def _changed(sources: Sequence[Source], looks: Looks) -> Iterator[tuple[Source, str | None]]:
    for source in sources:
        reason = looks.unreadable.get(source.stream_id)
        if reason is not None or source.known.has_error or source.known.topic_pk is None:
            yield source, reason
