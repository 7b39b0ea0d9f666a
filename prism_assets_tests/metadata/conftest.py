from __future__ import annotations

from collections.abc import Iterator

import pytest

from prism_assets.metadata.database import Database
from prism_assets_tests.metadata.emptying import empty
from prism_assets_tests.metadata.rows import Rows
from prism_assets_tests.metadata.sessions import Sessions
from prism_assets_tests.postgres import PostgresServer


@pytest.fixture(scope="package")
def database_url(postgres: PostgresServer) -> Iterator[str]:
    """Of this package alone: some tests change defaults of the database."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated, empty database."""
    empty(database_url)
    made = Database(database_url)
    yield made
    made.dispose()


@pytest.fixture
def rows(database: Database) -> Rows:
    return Rows(database)


@pytest.fixture
def sessions(database: Database) -> Iterator[Sessions]:
    """Connections of their own, each with an open transaction; what is still open in the end is rolled back."""
    made = Sessions(database)
    yield made
    made.close()
