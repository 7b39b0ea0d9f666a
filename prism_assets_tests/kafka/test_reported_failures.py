"""Five failures that users reported of another way from Kafka to Iceberg, played from their descriptions.

Each lost or doubled rows because offsets lay in one place and rows in another. Names have the number of the issue or
pull request in apache/iceberg. The other side of each is played in words: the same steps there ended as it says.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prism_assets.domain.errors import DatabaseUnavailable
from prism_assets.stages.kafka import flush as flushing
from prism_assets.stages.kafka.spooler import Spooler
from prism_assets_tests.kafka.broker import Broker, events
from prism_assets_tests.kafka.lake import TopicLake, a_topic_table

ROWS = list(range(30))


class Died(BaseException):
    """The end of a worker."""


@pytest.fixture
def topic(lake: TopicLake, broker: Broker) -> str:
    """A topic with 30 messages in three partitions, and its table."""
    name = broker.new_topic(3)
    lake.world.apply(a_topic_table(name, iceberg="{commit_seconds: 1}"))
    broker.send(name, events(ROWS, partitions=3))
    return name


def a_worker(lake: TopicLake, name: str) -> Spooler:
    return lake.spooler(name, lease_seconds=1.0)


def read_until(lake: TopicLake, worker: Spooler, point: str, error: BaseException) -> None:
    """Lets a worker read until it reaches a failpoint, where `error` ends the flush."""

    def reach(name: str) -> None:
        if name == point:
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flushing, "failpoint", reach)
        try:
            lake.turns(worker, lambda: any("failpoint" in told for told in worker.errors))
        except Died:
            worker.close()


def test_17551_a_zombie_moves_no_position_back_and_retention_resets_none(
    lake: TopicLake, broker: Broker, topic: str
) -> None:
    """There a coordinator without partitions wrote its old offsets, retention passed them, and a reset lost rows."""
    zombie = a_worker(lake, "zombie")
    zombie._look()
    (reading,) = zombie._readings.values()
    lake.turns(zombie, lambda: reading.size > 0)
    after = lake.rows("UPDATE prism_topic_partitions SET lease_token = NULL RETURNING 1")
    assert len(after) == 3, "others hold its partitions to be free"
    healthy = lake.spool(a_worker(lake, "healthy"))
    before = lake.positions()
    for partition in range(3):
        broker.forget_before(topic, partition, 10)
    zombie._flush(reading)
    assert any("belong to another worker" in told for told in zombie.errors)
    assert lake.positions() == before
    broker.send(topic, events(range(30, 60), partitions=3))
    lake.spool(healthy)
    assert lake.convert() == list(range(60))


def test_17340_a_worker_that_restarts_in_the_middle_commits_its_objects_once(
    lake: TopicLake, broker: Broker, topic: str
) -> None:
    """There tasks restarted within a cycle, and two consecutive commits had the same data files."""
    read_until(lake, a_worker(lake, "a"), "spool.after_commit", Died())
    broker.send(topic, events(range(30, 60), partitions=3))
    read_until(lake, a_worker(lake, "a"), "spool.after_put", Died())
    lake.spool(a_worker(lake, "a"))
    _published_once(lake, list(range(60)))


def test_16282_a_commit_without_an_answer_is_looked_up_and_not_repeated(lake: TopicLake, topic: str) -> None:
    """There the table had the file before the offset moved, and the next coordinator committed the file again."""
    worker = a_worker(lake, "a")
    read_until(lake, worker, "spool.after_commit", DatabaseUnavailable("failpoint: the answer is lost"))
    lake.spool(worker)
    _published_once(lake)


def test_13763_partitions_that_move_in_the_middle_of_a_flush_are_read_by_one(lake: TopicLake, topic: str) -> None:
    """There a second member joined within a cycle, and one coordinator registered 45 files in two snapshots."""
    worker = a_worker(lake, "a")

    def move(name: str) -> None:
        if name == "spool.after_put":
            lake.rows("UPDATE prism_topic_partitions SET worker = 'b', lease_token = gen_random_uuid() RETURNING 1")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flushing, "failpoint", move)
        lake.turns(worker, lambda: any("belong to another worker" in told for told in worker.errors))
    assert {position[1] for position in lake.positions()} == {0}
    lake.spool(a_worker(lake, "b"))
    _published_once(lake)


def test_18006_a_replacement_begins_at_the_committed_offset_and_not_at_the_end(
    lake: TopicLake, broker: Broker, topic: str
) -> None:
    """There a file was written and announced, the leader changed, and its successor began at the latest message."""
    read_until(lake, a_worker(lake, "a"), "spool.after_put", Died())
    broker.send(topic, events(range(30, 40), partitions=3))
    lake.spool(a_worker(lake, "b"))
    assert lake.convert() == list(range(40))


def _published_once(lake: TopicLake, rows: Sequence[int] = ROWS) -> None:
    """Glue and Iceberg have every message once."""
    assert lake.convert() == rows
    lake.world.iceberg(lake.now())
    assert lake.world.iceberg_ids() == rows
