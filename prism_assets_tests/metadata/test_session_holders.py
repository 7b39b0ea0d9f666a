"""Without a free session in PostgreSQL the error names the holders."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import text

from prism_assets.domain.errors import DatabaseUnavailable
from prism_assets.metadata.database import Database
from prism_assets.metadata.session_holders import read_holders
from prism_assets_tests.postgres import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[sqlalchemy.URL]:
    made = postgres.create_database()
    yield sqlalchemy.make_url(made)
    postgres.drop_database(made)


@pytest.fixture
def limited(url: sqlalchemy.URL) -> Iterator[sqlalchemy.URL]:
    """Returns the address of a role with at most one session."""
    owner = Database(url.render_as_string(hide_password=False))
    with owner.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE prism_limited LOGIN PASSWORD 'limited' CONNECTION LIMIT 1")
    yield url.set(username="prism_limited", password="limited")
    with owner.begin() as connection:
        connection.exec_driver_sql("DROP ROLE prism_limited")
    owner.dispose()


def session_of(url: sqlalchemy.URL, program: str) -> psycopg.Connection:
    address = url.set(drivername="postgresql").update_query_dict({"application_name": program})
    return psycopg.connect(address.render_as_string(hide_password=False))


def test_the_largest_holders_come_first(url: sqlalchemy.URL) -> None:
    held = [session_of(url, "greedy") for _ in range(60)]
    database = Database(url.render_as_string(hide_password=False))
    with database.begin() as connection:
        said = read_holders(connection)
        most = connection.execute(text("SHOW max_connections")).scalar_one()
    database.dispose()
    for session in held:
        session.close()
    assert said.startswith(f"of {most} sessions greedy has 60 as user {url.username} in database {url.database}")


def test_no_session_left_names_the_statement_that_finds_the_holders(limited: sqlalchemy.URL) -> None:
    database = Database(limited.render_as_string(hide_password=False))
    said = "has no session left: `SELECT usename, datname"
    with session_of(limited, "greedy"), pytest.raises(DatabaseUnavailable, match=said) as caught:
        database.has_table("prism_tables")
    database.dispose()
    assert str(caught.value).endswith("or raise max_connections; nothing is half done, repeat")
    assert "limited@" not in str(caught.value)
