"""Every committed message is readable once, wherever workers, converters and brokers die. Aborted ones never are."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import prism_assets
from prism_assets.domain.errors import WrongUse
from prism_assets_tests.crash.fork_server import ForkServer
from prism_assets_tests.crash.sweep import OF_TOPICS
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.kafka.broker import Broker, events
from prism_assets_tests.kafka.lake import TopicLake, a_topic_table
from prism_assets_tests.kafka.strikes import PARTITIONS, POINTS, Strikes, Writer, of_group
from prism_assets_tests.reliability import Figures
from prism_assets_tests.stages.engines import expire_leases
from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession, python_of_duckdb


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer.spawn()
    yield server
    server.close()


@pytest.fixture(scope="module")
def duckdb_session() -> Iterator[DuckDBSession | None]:
    """A DuckDB with the extension of DuckLake, or None where it is not installed."""
    try:
        python = python_of_duckdb()
    except WrongUse:
        yield None
        return
    with DuckDBSession(python) as session:
        yield session


def test_strikes_lose_and_double_no_message_and_leave_no_partition_behind(
    world: World,
    broker: Broker,
    fork_server: ForkServer,
    duckdb_session: DuckDBSession | None,
    services: Mapping[str, str],
    tmp_path: Path,
    figures: Figures,
    long: bool,
) -> None:
    lake = TopicLake.of(world, broker)
    topic = broker.new_topic(PARTITIONS)
    world.apply(a_topic_table(topic, iceberg="{commit_seconds: 1}"))
    writer = Writer(broker, topic, seed=7, pause=0.3 if long else 0.02)
    strikes = Strikes(lake, fork_server, tmp_path, seed=3)
    strikes.run(1_000 if long else 8, servers=20 if long else 1)
    writer.finish()
    expire_leases(world)  # every holder is dead
    spooler = lake.spool(lake.spooler("last", lease_seconds=2.0), seconds=120)
    spooler.stop()
    found = Counter(lake.convert())
    wanted = Counter(writer.committed)
    world.iceberg(lake.now())
    violations = [
        *(f"I1 message {number} is lost" for number in (wanted - found)),
        *(f"I2 message {number} is doubled, or was aborted" for number in (found - wanted)),
    ]
    if Counter(world.iceberg_ids()) != wanted:
        violations.append("I1 Iceberg has other messages")
    if duckdb_session is not None:
        ducklake = LakeOfTest(world, duckdb_session, services["PRISM_DUCKLAKE_URL"])
        if Counter(ducklake.ids()) != wanted:
            violations.append("I1 DuckLake has other messages")
        ducklake.detach()
    figures.note(
        "Messages of Kafka",
        violations,
        kills=sum(strikes.counts.values()),
        of_broker=strikes.counts["broker"],
        of_postgres=strikes.counts["postgres"],
        rows=len(writer.committed),
        aborted=writer.aborted,
    )
    assert violations == []
    assert writer.aborted > 0
    assert len(wanted) > 100
    for partition in range(PARTITIONS):
        chain = lake.ranges(partition)
        assert [end for _, end, *_ in chain[:-1]] == [begin for begin, *_ in chain[1:]]
    assert threading.active_count() < 50


def test_strikes_reach_every_failpoint_of_topics() -> None:
    sources = (Path(prism_assets.__file__).parent / "stages" / "kafka").glob("*.py")
    found = {name for path in sources for name in re.findall(r'failpoint\("([^"]+)"\)', path.read_text())}
    assert found == set(POINTS)
    assert all(name.startswith(OF_TOPICS) for name in found)


@pytest.mark.parametrize("auto", [True, False], ids=["auto commit", "committed after the data"])
def test_offsets_in_a_consumer_group_double_messages_under_the_same_kills(
    broker: Broker, fork_server: ForkServer, tmp_path: Path, auto: bool, long: bool
) -> None:
    if auto and not long:
        pytest.skip("the long form plays this way, too")
    topic = broker.new_topic(PARTITIONS)
    expected = range(6_000)
    broker.send(topic, events(expected, partitions=PARTITIONS))
    found = of_group(fork_server, broker, topic, tmp_path / "parts", 3 if long else 2, auto=auto, expected=expected)
    assert len(found) > len(expected), "the null control is red: a reader of these files sees messages twice"
