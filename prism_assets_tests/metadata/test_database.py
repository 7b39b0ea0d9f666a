"""Sessions for which time is short: PostgreSQL ends their statements, but never a migration."""

from __future__ import annotations

import time

import pytest
import sqlalchemy
from sqlalchemy import text

from prism_assets.domain.errors import DatabaseUnavailable
from prism_assets.metadata.database import Database
from prism_assets_tests.metadata.sessions import Sessions


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_a_statement_that_takes_longer_than_there_is_time_is_ended(database_url: str, left: float) -> None:
    fail_fast = Database(database_url, lambda: left)
    begun = time.monotonic()
    with (
        pytest.raises(DatabaseUnavailable, match="statement timeout"),
        fail_fast.begin() as connection,
    ):
        connection.execute(text("SELECT pg_sleep(8)"))
    assert 0.9 < time.monotonic() - begun < 6, "a second is left to everybody"
    fail_fast.dispose()


def test_a_statement_has_the_time_that_is_left(database_url: str) -> None:
    left = [float("inf"), 12.3451]
    fail_fast = Database(database_url, lambda: left.pop())
    limits = []
    for _ in range(2):
        with fail_fast.begin() as connection:
            limits.append(connection.execute(text("SHOW statement_timeout")).scalar_one())
    assert limits == ["12346ms", "1d"]
    fail_fast.dispose()


def test_without_a_limit_statements_take_as_long_as_they_take(database: Database) -> None:
    with database.begin() as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "0"


def test_the_migration_of_another_process_is_waited_for_no_longer_than_there_is_time(
    database_url: str, sessions: Sessions
) -> None:
    fail_fast = Database(database_url, lambda: 0.3)
    sessions.open().sql("SELECT pg_advisory_xact_lock(7170001)")
    begun = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="another process still brings the schema up to date"):
        fail_fast.migrate()
    assert time.monotonic() - begun < 10
    fail_fast.dispose()


def test_transactions_are_read_committed_whatever_the_server_has_as_its_default(database_url: str) -> None:
    """What is read under a row lock must not be older than the lock."""
    first = Database(database_url)
    name = sqlalchemy.make_url(database_url).database
    with first.outside_transactions() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"))
    first.dispose()
    database = Database(database_url)
    with database.begin() as connection:
        assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "read committed"
    database.dispose()
