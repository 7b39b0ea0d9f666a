"""A lake whose table reads a topic, for tests: its spoolers, its positions, and its chain of offsets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Row

from prism_assets.kafka.reader import Place
from prism_assets.stages.kafka.spooler import Spooler
from prism_assets_tests.builders import a_table
from prism_assets_tests.kafka.broker import Broker
from prism_assets_tests.world import World


def a_topic_table(topic: str, name: str = "log.events", *, stream: str = "", **more: Any) -> str:
    """Returns a table file whose stream reads a topic."""
    return a_table(name, stream=f"topic: {topic}, flush: {{seconds: 0.1}}{stream}", **more)


@dataclass
class TopicLake:
    """A world whose context knows the cluster of a broker."""

    world: World
    broker: Broker

    @classmethod
    def of(cls, world: World, broker: Broker) -> TopicLake:
        return cls(replace(world, context=replace(world.context, kafka=broker.clusters())), broker)

    def spooler(self, worker: str = "a", **more: Any) -> Spooler:
        """A spooler as a live worker has it, but without a thread."""
        cluster = self.broker.clusters().of("main")
        return Spooler(self.world.context, cluster, worker, clock=lambda: datetime.now(timezone.utc), **more)

    def spool(self, spooler: Spooler | None = None, *, seconds: float = 30.0) -> Spooler:
        """Takes turns until the positions are at the ends of all partitions that can be read. Returns the spooler."""
        spooler = spooler or self.spooler()
        self.turns(spooler, lambda: self.is_at_the_end(), seconds)
        return spooler

    def turns(self, spooler: Spooler, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Takes turns until a condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, ("it did not happen", spooler.errors, self.positions())
            spooler.turn()

    def convert(self) -> list[int]:
        """Converts the spool objects, and returns all ids that a reader sees."""
        self.world.stream(self.now())
        self.world.catalog(self.now())
        return self.world.ids()

    def now(self) -> str:
        """The current time, as commands take it: spool objects have the time of their PUT."""
        return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}"

    def rows(self, sql: str) -> list[Row[Any]]:
        with self.world.context.database.begin() as connection:
            return list(connection.exec_driver_sql(sql))

    def positions(self) -> list[tuple[Any, ...]]:
        """Partition, next offset, state and error of the topics that are read."""
        return [
            tuple(row)
            for row in self.rows(
                "SELECT p.partition, p.next_offset, p.state, p.last_error FROM prism_topic_partitions p "
                "JOIN prism_topics t USING (prism_topic_id) WHERE NOT t.ended ORDER BY t.prism_topic_id, p.partition"
            )
        ]

    def ranges(self, partition: int = 0) -> list[tuple[Any, ...]]:
        """The chain of a partition: begin, end, kind and records."""
        return [
            tuple(row)
            for row in self.rows(
                "SELECT from_offset, to_offset, kind, records FROM prism_offset_ranges "
                f"WHERE partition = {partition} ORDER BY to_offset"
            )
        ]

    def is_at_the_end(self) -> bool:
        """Whether every partition that is not stopped is at its last stable offset."""
        cluster = self.broker.clusters().of("main")
        found = self.rows(
            "SELECT t.topic_name, p.partition, p.next_offset, p.state FROM prism_topic_partitions p "
            "JOIN prism_topics t USING (prism_topic_id) WHERE NOT t.ended"
        )
        reading = {Place(row.topic_name, row.partition): row.next_offset for row in found if row.state == "reading"}
        return bool(found) and cluster.stable_offsets(reading) == reading
