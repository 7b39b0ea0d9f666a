"""What tests of crashes share: a fleet of workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.postgres import PostgresServer


@pytest.fixture(scope="session")
def fleet(services: Mapping[str, str], postgres: PostgresServer) -> Iterator[Fleet]:
    """Workers that play lives with the package as it is."""
    made = Fleet(services, postgres.template())
    yield made
    made.close()
