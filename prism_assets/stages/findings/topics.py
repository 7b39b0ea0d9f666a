"""Topics of Kafka that are not read: stopped partitions, stopped topics, and topics without a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, listed, span
from prism_assets.metadata.kafka.audit import load_skipped
from prism_assets.metadata.kafka.lag import PartitionLag, TopicLag, load_lags
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject

TOPICS_READ, OFFSETS_SKIPPED = "topics_read", "offsets_skipped"
SILENT_SECONDS = 60.0
"""A partition without a heartbeat for this time has no worker. A lease takes 15 seconds."""
RECENT = timedelta(days=7)
"""Skipped offsets have a finding for this time. Doctor names all."""
_SHOWN = 5


def topic_tables(tables: Sequence[TableDefinition]) -> list[int]:
    """Returns the ids of the tables that read topics. Others cost no statement."""
    return [table.table_id for table in tables if table.reads_topics]


def find_unread(look: Look) -> Iterator[Finding]:
    """Topics and partitions that wait for a person. A stopped topic has one finding for all of its partitions."""
    ids = topic_tables(look.tables)
    for topic in load_lags(look.connection, ids) if ids else ():
        table = look.names[topic.table_id]
        if topic.last_error is not None:
            yield _stopped_topic(table, topic)
            continue
        for partition in topic.partitions:
            if partition.is_stopped:
                yield _stopped_partition(table, topic, partition)
        if topic.look_error is not None:
            continue  # the finding of silent streams reports it
        if silent := _silent(topic):
            yield _unread(table, topic, silent)
        elif topic.topic_pk is None and topic.waiting_seconds > SILENT_SECONDS:
            yield _unregistered(table, topic)


def _stopped_topic(table: str, topic: TopicLag) -> Finding:
    return Finding(
        kind="stopped_topic",
        table=table,
        says=_since(topic, f"{topic.last_error}"),
        remedy="Workers go on by themselves where the former topic comes back",
        since=topic.error_time,
        invariant="I10",
    )


def _since(item: TopicLag | PartitionLag, reason: str) -> str:
    return f"since {item.error_time:%Y-%m-%d %H:%M}Z {reason}" if item.error_time else reason


def _stopped_partition(table: str, topic: TopicLag, partition: PartitionLag) -> Finding:
    """The worker's reason names the command."""
    return Finding(
        kind="stopped_partition",
        table=table,
        says=_since(partition, f"{partition.last_error}"),
        remedy=f"Other partitions of {topic.url} go on; `prism kafka status {table}` shows them",
        since=partition.error_time,
        invariant="I10",
    )


def _silent(topic: TopicLag) -> list[PartitionLag]:
    return [item for item in topic.partitions if not item.is_stopped and item.silent_seconds > SILENT_SECONDS]


def _unread(table: str, topic: TopicLag, silent: Sequence[PartitionLag]) -> Finding:
    """Returns the finding for partitions without a worker."""
    seconds = min(item.silent_seconds for item in silent)
    what = (
        f"{topic.url} is"
        if len(silent) == len(topic.partitions)
        else f"{counted(len(silent), 'partition')} of {topic.url} "
        f"({listed([str(item.partition) for item in silent], _SHOWN)}) {'is' if len(silent) == 1 else 'are'}"
    )
    return Finding(
        kind="unread_topic",
        table=table,
        says=f"{what} read by no worker for {span(round(seconds))}",
        remedy="Start `prism worker`. Messages wait at the brokers, for as long as the topic keeps them",
        count=len(silent),
        invariant="I10",
    )


def _unregistered(table: str, topic: TopicLag) -> Finding:
    return Finding(
        kind="unread_topic",
        table=table,
        says=f"no worker has begun to read {topic.url} for {span(round(topic.waiting_seconds))}",
        remedy="Start `prism worker` with prism-assets[kafka] and the connection of the cluster "
        f"(PRISM_KAFKA_{topic.cluster.upper()}_BOOTSTRAP_SERVERS)",
        invariant="I10",
    )


def find_skipped(look: Look) -> Iterator[Finding]:
    """Offsets that a person decided not to read, in the last days."""
    ids = topic_tables(look.tables)
    for item in load_skipped(look.connection, ids, look.now - RECENT) if ids and look.for_people else ():
        yield Finding(
            kind="skipped_offsets",
            table=look.names[item.table_id],
            says=str(item),
            acts=Acts.TIME,
            since=item.time,
            count=item.count,
            ends_runs=False,
        )


TOPICS = Subject(
    find=find_unread,
    check=FindingCheck(
        name=TOPICS_READ,
        asset="live",
        about="A worker reads every partition of every topic.",
        passes="workers read every partition of its topics",
        is_error=True,
        of_topics=True,
    ),
)
SKIPPED = Subject(
    find=find_skipped,
    check=FindingCheck(
        name=OFFSETS_SKIPPED,
        asset="live",
        about=f"No offsets were skipped by hand in the last {RECENT.days} days.",
        passes=f"no offsets were skipped in the last {RECENT.days} days",
        of_topics=True,
    ),
)
