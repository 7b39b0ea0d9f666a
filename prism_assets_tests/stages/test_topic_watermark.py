"""The watermark of a join table with topics: it waits for messages that could be read, in all partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import pytest

from prism_assets.metadata.kafka import offset_ranges, partitions, topics
from prism_assets.metadata.kafka.offset_ranges import ReadRange, SpooledObject
from prism_assets.metadata.records import watermark
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.join_tables import a_join
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
FRONT = '{name: front, url: "s3://staging/front/", group: front}'


@dataclass
class Reader:
    """What a worker notes about the partitions of the topic, without a broker."""

    world: World
    stream_id: int
    topic_pk: int = 0
    tokens: dict[int, str] = field(default_factory=dict)

    def register(self, *numbers: int) -> None:
        with self.world.context.database.begin() as connection:
            topics.register(
                connection, self.stream_id, cluster_id="c", topic_id="t", topic_name="front",
                first_offsets=dict.fromkeys(numbers, 0),
            )  # fmt: skip
            (self.topic_pk,) = connection.exec_driver_sql("SELECT prism_topic_id FROM prism_topics").scalars()
            taken = partitions.take(connection, [(self.topic_pk, number) for number in numbers], "w", 60)
        self.tokens |= {item.partition: item.token for item in taken}

    def beat(self, seen: str, **ends: int) -> None:
        """Notes the ends at a time, such as `p0=3`."""
        noted = {(self.topic_pk, int(name[1:])): end for name, end in ends.items()}
        with self.world.context.database.begin() as connection:
            assert len(partitions.beat(connection, list(self.tokens.values()), noted, utc(seen))) == len(self.tokens)

    def commit(self, begin: int, to: int, *, put: str | None = None, partition: int = 0) -> None:
        """Moves the position of a partition; with `put`, a spool object waits from then on."""
        read = ReadRange(
            partition=partition, token=self.tokens[partition], from_offset=begin, to_offset=to,
            records=to - begin if put else 0, leader_epoch=None, last_message_time=None,
        )  # fmt: skip
        number = None
        with self.world.context.database.begin() as connection:
            stream = offset_ranges.hold_topic(connection, self.topic_pk)
            offset_ranges.lock_positions(connection, self.topic_pk, [read])
            if put:
                spooled = SpooledObject(bucket="lake", key=f"k{to}", content_length=1, put_time=utc(put))
                number = offset_ranges.register_object(connection, stream, self.topic_pk, spooled, [read])
            offset_ranges.append(connection, self.topic_pk, [read], number)

    def clock(self) -> datetime | None:
        """Discovers at three in the afternoon, and returns the watermark."""
        self.world.discover("2026-03-01T15:00")
        with self.world.context.database.begin() as connection:
            return watermark.load(connection, 1)


@pytest.fixture
def reader(world: World) -> Reader:
    """A join table with a topic and a prefix, which is listed at each look at the clock."""
    text = a_join()
    assert FRONT in text
    world.apply(text.replace(FRONT, "{name: front, topic: front, group: front}"))
    with world.context.database.begin() as connection:
        statement = "SELECT prism_stream_id FROM prism_streams WHERE bucket_name = 'kafka:main'"
        return Reader(world, connection.exec_driver_sql(statement).scalar_one())


def test_a_topic_that_was_never_read_holds_the_watermark(reader: Reader) -> None:
    assert reader.clock() is None
    reader.register(0)
    assert reader.clock() is None


def test_the_watermark_follows_a_topic_that_is_read_to_its_end(reader: Reader) -> None:
    reader.register(0)
    reader.beat(NOON, p0=0)
    assert reader.clock() is None, "the position is compared at the next beat"
    reader.beat("2026-03-01T13:00", p0=0)
    assert reader.clock() == utc("2026-03-01T11:55")
    reader.beat("2026-03-01T14:00", p0=0)
    assert reader.clock() == utc("2026-03-01T12:55")


def test_a_partition_that_is_always_behind_moves_the_watermark_with_a_delay(reader: Reader) -> None:
    reader.register(0)
    reader.beat(NOON, p0=3)
    reader.beat("2026-03-01T13:00", p0=9)
    assert reader.clock() is None
    reader.commit(0, 4)
    reader.beat("2026-03-01T14:00", p0=12)
    assert reader.clock() == utc("2026-03-01T11:55")


def test_the_slowest_partition_holds_the_watermark(reader: Reader) -> None:
    reader.register(0, 1)
    reader.beat(NOON, p0=0, p1=5)
    reader.beat("2026-03-01T13:00", p0=0, p1=5)
    assert reader.clock() is None
    reader.commit(0, 5, partition=1)
    reader.beat("2026-03-01T14:00", p0=0, p1=5)
    assert reader.clock() == utc("2026-03-01T11:55")


def test_a_waiting_spool_object_counts_from_the_time_when_its_messages_could_be_read(reader: Reader) -> None:
    """A message may wait in Kafka for hours before its object is written, and a record must not settle meanwhile."""
    reader.register(0)
    reader.beat("2026-03-01T09:00", p0=0)
    reader.beat("2026-03-01T10:00", p0=2)
    reader.commit(0, 2, put="2026-03-01T13:00")
    reader.beat("2026-03-01T14:00", p0=2)
    reader.beat("2026-03-01T14:30", p0=2)
    assert reader.clock() == utc("2026-03-01T09:00")
    with reader.world.context.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM prism_staging_objects")
    assert reader.clock() == utc("2026-03-01T13:55")


def test_an_object_of_a_partition_without_a_complete_time_holds_the_watermark(reader: Reader) -> None:
    reader.register(0)
    reader.commit(0, 2, put=NOON)
    reader.beat("2026-03-01T13:00", p0=2)
    reader.beat("2026-03-01T14:00", p0=2)
    assert reader.clock() == utc("1970-01-01T00:00")


def test_a_finding_names_the_topic_that_holds_the_watermark(reader: Reader) -> None:
    reader.register(0)
    with reader.world.context.database.begin() as connection:
        hold = watermark.load_hold(connection, 1)
    assert (hold.stream, hold.listed, hold.is_topic) in [("back", None, False), ("front", None, True)]
    reader.beat(NOON, p0=0)
    reader.beat("2026-03-01T13:00", p0=0)
    reader.clock()
    with reader.world.context.database.begin() as connection:
        hold = watermark.load_hold(connection, 1)
    assert (hold.stream, hold.listed, hold.is_topic) == ("front", utc(NOON), True)
