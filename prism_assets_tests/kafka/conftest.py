"""A broker for all tests of a worker of pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prism_assets_tests.kafka.broker import Broker
from prism_local import jars, kafka_jars
from prism_local.faults import StackError
from prism_local.layout import Layout


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker. Skips the tests where its jars cannot be fetched."""
    root = tmp_path_factory.mktemp("kafka")
    try:
        jars.ensure_all(kafka_jars.JARS, Layout(root / ".prism"))
    except StackError as error:
        pytest.skip(f"there is no Kafka here: {error}")
    made = Broker(root)
    try:
        yield made
    finally:
        made.close()
