"""A broker for all tests of a worker of pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prism_assets_tests.kafka.broker import Broker, need_kafka
from prism_assets_tests.kafka.lake import TopicLake
from prism_assets_tests.world import World


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker. Skips the tests where its jars cannot be fetched."""
    root = tmp_path_factory.mktemp("kafka")
    need_kafka(root / ".prism")
    made = Broker(root)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def lake(world: World, broker: Broker) -> TopicLake:
    """A world that reads topics of the broker."""
    return TopicLake.of(world, broker)
