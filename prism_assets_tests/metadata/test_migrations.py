"""Migrations: they wait for each other, are not cut off by a deadline, and leave nothing behind when they die."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from sqlalchemy import text

from prism_assets.metadata import database as database_module
from prism_assets.metadata import locks
from prism_assets.metadata.database import Database
from prism_assets_tests.metadata.rows import Rows
from prism_assets_tests.metadata.sessions import Session, Sessions
from prism_assets_tests.postgres import PostgresServer

HEAD = "0001"
LAST_TABLE = "prism_lake_mappings"
"""A table near the end of the schema."""


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    made = postgres.create_empty_database()
    yield made
    postgres.drop_database(made)


@pytest.fixture
def empty(url: str) -> Iterator[Rows]:
    """A database without tables."""
    made = Database(url)
    yield Rows(made)
    made.dispose()


@pytest.fixture
def sessions(empty: Rows) -> Iterator[Sessions]:
    made = Sessions(empty.database)
    yield made
    made.close()


def version(rows: Rows) -> str | None:
    """Returns the migration of a database, or None without any table."""
    if not rows.database.has_table("alembic_version"):
        return None
    return str(rows.value("SELECT version_num FROM alembic_version"))


def in_the_way(sessions: Sessions) -> Session:
    """A session that also creates a table of the schema, without a commit: a migration waits for it."""
    made = sessions.open()
    made.sql(f"CREATE TABLE {LAST_TABLE} (number integer)")
    return made


def wait_for_migration(sessions: Sessions) -> None:
    """Returns when a migration waits for a lock."""
    watching = sessions.open()
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND query LIKE '-- The schema of prism_assets%'"
    )
    for _ in range(2_000):
        if watching.sql(statement)[0][0]:
            watching.commit()
            return
        watching.sql("SELECT pg_sleep(0.005)")
        watching.sql("SELECT pg_stat_clear_snapshot()")
    raise AssertionError("no migration waits")


def test_a_migration_that_is_broken_off_leaves_nothing_and_the_next_makes_all_of_it(
    empty: Rows, sessions: Sessions
) -> None:
    other, ending = in_the_way(sessions), sessions.open()
    with ThreadPoolExecutor(1) as thread:
        migration = thread.submit(empty.database.migrate)
        wait_for_migration(sessions)
        ending.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '-- The schema of prism_assets%'"
        )
        assert migration.exception(timeout=120) is not None
    other.close()
    assert (version(empty), empty.database.has_table("prism_tables")) == (None, False)
    empty.database.migrate()
    assert (version(empty), empty.database.has_table(LAST_TABLE)) == (HEAD, True)


def test_migrations_wait_for_each_other_without_being_in_each_others_way(empty: Rows) -> None:
    with ThreadPoolExecutor(4) as threads:
        migrations = [threads.submit(empty.database.migrate) for _ in range(4)]
        wait(migrations, timeout=120)
    assert [migration.exception(timeout=0) for migration in migrations] == [None] * 4
    assert version(empty) == HEAD


def test_a_migration_waits_for_the_one_that_is_running(
    empty: Rows, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_MIGRATION_PAUSE", 0.01)
    running = sessions.open()
    running.sql("SELECT pg_advisory_xact_lock(:lock)", lock=locks.MIGRATION)
    with ThreadPoolExecutor(1) as thread:
        migration = thread.submit(empty.database.migrate)
        assert not wait([migration], timeout=0.3).done
        assert version(empty) is None
        running.commit()
        migration.result(timeout=120)
    assert version(empty) == HEAD


def test_a_migration_leaves_no_lock_behind(empty: Rows) -> None:
    empty.database.migrate()
    with empty.database.begin() as connection:
        statement = text("SELECT pg_try_advisory_xact_lock(:lock)")
        assert connection.execute(statement, {"lock": locks.MIGRATION}).scalar_one()
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "30s"


def test_a_migration_that_has_begun_is_not_cut_off(empty: Rows, url: str, sessions: Sessions) -> None:
    """Otherwise the migration would start again each time, and never end."""
    other = in_the_way(sessions)
    fail_fast = Database(url, lambda: 0.5)
    timer = threading.Timer(1.5, other.close)
    timer.start()
    begun = time.monotonic()
    fail_fast.migrate()
    assert time.monotonic() - begun > 1.3
    timer.join()
    fail_fast.dispose()
    assert version(empty) == HEAD
