from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World


@pytest.fixture(scope="package")
def database_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def world(services: Mapping[str, str], database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform of its own, on the database of the package."""
    with a_world(services, database_url, tmp_path) as made:
        yield made
