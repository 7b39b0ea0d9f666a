"""Compares positions in topics with the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prism_assets.domain.errors import PrismError, SettingsError
from prism_assets.domain.findings import Finding
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kafka.cluster import Offsets
from prism_assets.kafka.reader import Place
from prism_assets.metadata.invariants import begin_reading
from prism_assets.metadata.kafka.lag import TopicLag, load_lags
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.topics import topic_tables
from prism_assets.stages.kafka.status import ask_bounds


@dataclass
class LookAtBrokers:
    """Findings by the answers of brokers, and places without an answer."""

    findings: list[Finding] = field(default_factory=list)
    unseen: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Clusters to which this machine has no connection. Workers have one."""


def look_at_brokers(context: StageContext, tables: Sequence[TableDefinition]) -> LookAtBrokers:
    """Asks for the last stable offset of each partition. A position beyond it means a truncated or another log.

    Positions are read first: a worker that goes on meanwhile stays before the end.
    """
    found = LookAtBrokers()
    names = {table.table_id: str(table.name) for table in tables}
    if not (ids := topic_tables(tables)):
        return found
    with context.database.begin() as connection:
        begin_reading(connection)
        topics = [topic for topic in load_lags(connection, ids) if topic.last_error is None]
    answers = ask_bounds(context, topics)
    for topic in topics:
        answer, table = answers[topic.stream_id], names[topic.table_id]
        if isinstance(answer, SettingsError):
            found.notes.append(f"{table}: brokers were not asked for {topic.url}: {answer}")
        elif isinstance(answer, PrismError):
            found.unseen.append(Problem.of(answer, table))
        else:
            found.findings += _beyond_the_end(table, topic, answer)
    return found


def _beyond_the_end(table: str, topic: TopicLag, bounds: Mapping[Place, Offsets]) -> list[Finding]:
    return [
        Finding(
            kind="position_beyond_end",
            table=table,
            says=f"partition {item.partition} of {topic.url} was read up to offset {item.next_offset}, and its log "
            f"ends at {end.stable}",
            remedy=f"The log was truncated, or the topic is another one. `prism kafka status {table}` says what its "
            "worker found",
            invariant="I2",
        )
        for item in topic.partitions
        if not item.is_stopped
        and (end := bounds.get(Place(topic.topic, item.partition))) is not None
        and item.next_offset > end.stable
    ]
