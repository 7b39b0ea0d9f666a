"""The streams of topics: definitions from table files, and registered rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from prism_assets.domain.streams.topic import Topic
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kafka.reader import Place
from prism_assets.metadata.kafka import topics
from prism_assets.metadata.kafka.topics import TopicStream
from prism_assets.stages.context import StageContext


@dataclass(frozen=True)
class Source:
    """A stream of a topic, with definition and registered rows."""

    table: TableDefinition
    stream: str
    """The name of the stream."""
    topic: Topic
    known: TopicStream

    @property
    def stream_id(self) -> int:
        """The id of the stream."""
        return self.known.stream_id

    @property
    def name(self) -> str:
        """The stream for people."""
        return (
            f"stream {self.stream} of {self.table.name} (topic {self.topic.name} of the cluster {self.topic.cluster})"
        )

    def place(self, partition: int) -> Place:
        """Returns a partition of the topic."""
        return Place(self.topic.name, partition)


def load_sources(context: StageContext, wanted: Collection[int] | None = None) -> list[Source]:
    """Returns the streams of topics of all tables, or of those `wanted` by id. Stopped streams are left out."""
    with context.database.begin() as connection:
        known = topics.load_topic_streams(connection)
    if not known:  # an installation without topics loads no definitions for them
        return []
    tables = [table for table in context.choose_logs(None) if wanted is None or table.table_id in wanted]
    return [source for table in tables for source in _of_table(table, known)]


def _of_table(table: TableDefinition, known: dict[tuple[int, str, str], TopicStream]) -> Iterator[Source]:
    for stream in table.streams:
        found = known.get((table.table_id, stream.bucket, stream.key_prefix))
        if stream.topic is not None and found is not None:
            yield Source(table, stream.name, stream.topic, found)
