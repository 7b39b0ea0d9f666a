"""Numbers of rewrites: all kinds draw them from one sequence, and no number in a key keeps that busy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from prism_assets.domain.files.rewrites import RewriteKind
from prism_assets.metadata.database import Database
from prism_assets.metadata.rewrites import rewrites
from prism_assets_tests.postgres import PostgresServer

_TABLE = """
INSERT INTO prism_tables (prism_table_id, schema_name, table_name, create_time, merge_interval, definition_version)
OVERRIDING SYSTEM VALUE VALUES (1, 'log', 'events', now(), 0, 1)
"""


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    """One table, and no rewrite yet."""
    url = postgres.create_database()
    made = Database(url)
    with made.begin() as connection:
        connection.execute(text(_TABLE))
    yield made
    made.dispose()
    postgres.drop_database(url)


def begin(database: Database, above: int = 0) -> int:
    with database.begin() as connection:
        rewrites.raise_numbers(connection, above)
        return rewrites.begin_of_table(connection, 1, RewriteKind.FOLD, definition_version=1, worker="one")


@pytest.mark.parametrize(("above", "next_number"), [(0, 1), (1, 2), (2, 3), (500, 501)])
def test_the_first_rewrite_takes_the_first_number_above_those_of_keys(
    database: Database, above: int, next_number: int
) -> None:
    assert begin(database, above) == next_number


def test_numbers_below_those_that_were_drawn_raise_nothing(database: Database) -> None:
    assert [begin(database), begin(database, 1), begin(database, 2), begin(database, 1)] == [1, 2, 3, 4]


def test_a_number_that_somebody_forged_in_a_key_costs_a_million_numbers_and_no_more(database: Database) -> None:
    begin(database)
    assert begin(database, (1 << 63) - 1) == 1_000_002
