"""Topics of Kafka without brokers: table files, and rows as workers write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from prism_assets.metadata.database import Database
from prism_assets_tests.builders import a_table


def a_topic_table(name: str = "log.events", topic: str = "app.events", **more: Any) -> str:
    """Returns a table file with the columns time and id, fed by a topic of the cluster `main`."""
    return a_table(name, stream=f"topic: {topic}, cluster: main", **more)


@dataclass(frozen=True)
class TopicRows:
    """Rows of one topic, whose worker has just looked."""

    database: Database
    topic_pk: int

    @classmethod
    def register(
        cls, database: Database, topic: str = "app.events", *, starts: tuple[int, ...] = (0,), topic_id: str = "T1"
    ) -> TopicRows:
        """Registers a topic of an applied table, with partitions that begin at `starts` and that a worker reads."""
        with database.begin() as connection:
            topic_pk = connection.execute(
                text(
                    "INSERT INTO prism_topics (prism_stream_id, cluster_id, topic_id, topic_name) SELECT "
                    "prism_stream_id, 'C1', :id, :topic FROM prism_streams WHERE key_prefix = :topic || '/' "
                    "RETURNING prism_topic_id"
                ),
                {"topic": topic, "id": topic_id},
            ).scalar_one()
        made = cls(database, topic_pk)
        for partition, start in enumerate(starts):
            made.sql(
                "INSERT INTO prism_topic_partitions (prism_topic_id, partition, next_offset, worker, lease_token, "
                "heartbeat_time, end_offset) VALUES (:topic, :partition, :start, 'host:1', gen_random_uuid(), "
                "clock_timestamp(), :start)",
                partition=partition,
                start=start,
            )
            made.sql(
                "INSERT INTO prism_offset_ranges (prism_topic_id, partition, to_offset, kind) "
                "VALUES (:topic, :partition, :start, 'start')",
                partition=partition,
                start=start,
            )
        return made

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        """Runs one statement, in which `:topic` is this topic, and returns its rows."""
        with self.database.begin() as connection:
            result = connection.execute(text(statement), {"topic": self.topic_pk, **parameters})
            return list(result.all()) if result.returns_rows else []

    def read(
        self, to_offset: int, *, partition: int = 0, staging: int | None = None, records: int | None = None
    ) -> None:
        """Adds a range from the position to `to_offset`, and moves the position."""
        self.sql(
            "INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind, records, "
            "prism_staging_object_id) SELECT prism_topic_id, partition, next_offset, :until, 'read', "
            "coalesce(CAST(:records AS bigint), :until - next_offset), :staging "
            "FROM prism_topic_partitions WHERE prism_topic_id = :topic AND partition = :partition",
            partition=partition,
            until=to_offset,
            records=records,
            staging=staging,
        )
        self.set(
            "next_offset = :until, end_offset = greatest(end_offset, :until)", partition=partition, until=to_offset
        )

    def set(self, assignments: str, *, partition: int = 0, **parameters: Any) -> None:
        """Changes columns of the row of a partition."""
        self.sql(
            f"UPDATE prism_topic_partitions SET {assignments} WHERE prism_topic_id = :topic AND partition = :partition",
            partition=partition,
            **parameters,
        )

    def stop(self, reason: str = "the offset is not there any more", *, partition: int = 0) -> None:
        """Stops a partition, as a worker does."""
        self.set(
            "state = 'stopped', last_error = :reason, error_time = clock_timestamp(), worker = NULL, "
            "lease_token = NULL",
            partition=partition,
            reason=reason,
        )
