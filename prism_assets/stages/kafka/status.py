"""The partitions of topics with their lag, by PostgreSQL, and by the brokers where they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prism_assets.domain.errors import PrismError, TransientError
from prism_assets.kafka.cluster import Offsets
from prism_assets.kafka.reader import Place
from prism_assets.metadata.kafka.lag import PartitionLag, TopicLag
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.topics import load_topics


@dataclass(frozen=True, kw_only=True)
class TopicPartitionStatus:
    """One partition of a topic: figures of workers, and answers of brokers."""

    partition: int
    next_offset: int
    first_offset: int | None
    """The first offset that the brokers still have."""
    last_stable_offset: int | None
    lag_offsets: int | None
    lag_seconds: float | None
    state: str
    worker: str | None
    silent_seconds: float
    last_error: str | None


@dataclass(frozen=True, kw_only=True)
class TopicStatus:
    """A topic that feeds a table, with its partitions."""

    table: str
    stream: str
    url: str
    cluster_id: str | None
    topic_id: str | None
    last_error: str | None
    """Why nothing of the topic is read."""
    not_asked: str | None
    """Why the figures are those of the workers, and not of the brokers."""
    partitions: tuple[TopicPartitionStatus, ...]


def read_topic_status(context: StageContext, names: Sequence[str] | None = None) -> tuple[TopicStatus, ...]:
    """Returns the topics of the named tables, or of all. A cluster that does not answer fails nothing."""
    found = load_topics(context, names)
    answers = ask_bounds(context, [topic for _, topic in found])
    return tuple(_status(table, topic, answers[topic.stream_id]) for table, topic in found)


Answer = Mapping[Place, Offsets] | PrismError
"""The bounds of the partitions of a topic, or why its brokers do not tell them."""


def ask_bounds(context: StageContext, topics: Sequence[TopicLag]) -> dict[int, Answer]:
    """Returns the answer for each topic, by stream. After a cluster did not answer once, it is not asked again."""
    answers: dict[int, Answer] = {}
    silent: dict[str, TransientError] = {}
    for topic in topics:
        answers[topic.stream_id] = silent.get(topic.cluster) or _ask(context, topic)
        if isinstance(error := answers[topic.stream_id], TransientError):
            silent[topic.cluster] = error
    return answers


def _ask(context: StageContext, topic: TopicLag) -> Answer:
    places = [Place(topic.topic, item.partition) for item in topic.partitions]
    if topic.last_error is not None or not places:
        return {}
    try:
        return context.kafka.of(topic.cluster).offsets(places)
    except PrismError as error:
        return error


def _status(table: str, topic: TopicLag, answer: Answer) -> TopicStatus:
    bounds: Mapping[Place, Offsets] = {} if isinstance(answer, PrismError) else answer
    return TopicStatus(
        table=table,
        stream=topic.stream,
        url=topic.url,
        cluster_id=topic.cluster_id,
        topic_id=topic.topic_id,
        last_error=topic.last_error or topic.look_error,
        not_asked=str(answer) if isinstance(answer, PrismError) else None,
        partitions=tuple(
            _partition_status(item, bounds.get(Place(topic.topic, item.partition))) for item in topic.partitions
        ),
    )


def _partition_status(item: PartitionLag, bounds: Offsets | None) -> TopicPartitionStatus:
    if bounds:
        item = replace(item, end_offset=bounds.stable)
    return TopicPartitionStatus(
        partition=item.partition,
        next_offset=item.next_offset,
        first_offset=bounds.low if bounds else None,
        last_stable_offset=item.end_offset,
        lag_offsets=item.lag_offsets,
        lag_seconds=0.0 if item.lag_offsets == 0 else item.lag_seconds,
        state=item.state,
        worker=item.worker,
        silent_seconds=item.silent_seconds,
        last_error=item.last_error,
    )
