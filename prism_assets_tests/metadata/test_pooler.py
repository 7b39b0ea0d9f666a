"""Sessions behind a pooler in transaction mode: each transaction may get another session, and leaves nothing in it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import text

from prism_assets.metadata.database import Database
from prism_assets.metadata.run_locks import run_lock, runs_without_lock
from prism_assets.postgres import create_engine
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.transaction_pooler import TransactionPooler, transaction_pooler

RUN = "33333333-4444"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """A database without a migration."""
    made = postgres.copy_database("template1", "prism_pooled")
    yield made
    postgres.drop_database(made)


@pytest.fixture
def pooler(url: str) -> Iterator[TransactionPooler]:
    with transaction_pooler(url) as made:
        yield made


@pytest.fixture
def database(pooler: TransactionPooler) -> Iterator[Database]:
    made = Database(pooler.url)
    yield made
    made.dispose()


def test_transactions_of_one_client_meet_several_sessions(pooler: TransactionPooler, database: Database) -> None:
    """Otherwise the other tests would prove nothing."""
    met = set()
    for _ in range(8):
        with database.begin() as connection:
            first, second = (connection.execute(text("SELECT pg_backend_pid()")).scalar_one() for _ in range(2))
            assert first == second
            met.add(first)
    assert len(met) == 3


def test_what_a_client_leaves_in_a_session_is_found(pooler: TransactionPooler) -> None:
    """A client of the bare driver: another one would run this statement in place of its own of the same name."""
    plain = sqlalchemy.make_url(pooler.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, prepare_threshold=0, autocommit=True) as client:
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            client.execute("SELECT 1")
        client.execute("SET lock_timeout = '7s'", prepare=False)
        client.execute("SELECT pg_advisory_lock(12)", prepare=False)
    assert sorted(pooler.left_behind()) == [
        "advisory lock 12",
        "prepared statement SELECT 1",
        "setting lock_timeout = 7000",
    ]


def test_a_statement_is_never_prepared_by_name_however_often_it_comes(
    pooler: TransactionPooler, database: Database
) -> None:
    for number in range(40):
        with database.begin() as connection:
            assert connection.execute(text("SELECT :n + 0"), {"n": number}).scalar_one() == number
            rows = [{"n": item} for item in range(3)]
            connection.execute(text("SELECT set_config('application_name', CAST(:n AS text), true)"), rows)
    assert pooler.left_behind() == []


def test_each_transaction_makes_its_own_settings(pooler: TransactionPooler, database: Database, url: str) -> None:
    name = sqlalchemy.make_url(url).database
    with database.outside_transactions() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"))
        connection.execute(text(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'"))
    wanted = {
        "transaction_isolation": "read committed",
        "timezone": "UTC",
        "lock_timeout": "30s",
        "idle_in_transaction_session_timeout": "1min",
    }
    with transaction_pooler(url) as later:
        made = Database(later.url)
        for _ in range(5):
            with made.begin() as connection:
                assert {key: connection.execute(text(f"SHOW {key}")).scalar_one() for key in wanted} == wanted
                assert connection.execute(text("SELECT timestamptz 'epoch'")).scalar_one().isoformat()[-6:] == "+00:00"
        with made.repeatable_read() as connection:
            assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "repeatable read"
        made.dispose()
        assert later.left_behind() == []


def test_a_pooler_that_refuses_settings_of_sessions_refuses_a_process_once(pooler: TransactionPooler) -> None:
    for _ in range(3):
        made = Database(pooler.url)
        assert not made.has_table("prism_tables")
        made.dispose()
    assert pooler.logins_refused == 1


def test_options_of_the_address_are_kept_beside_ours(url: str) -> None:
    address = sqlalchemy.make_url(url).update_query_dict({"options": "-c search_path=elsewhere"})
    made = Database(address.render_as_string(hide_password=False))
    with made.begin() as connection:
        shown = [connection.execute(text(f"SHOW {name}")).scalar_one() for name in ("search_path", "tcp_user_timeout")]
    made.dispose()
    assert shown == ["elsewhere", "60000"]


def test_migrations_of_several_processes_wait_for_each_other_behind_a_pooler(
    pooler: TransactionPooler, database: Database
) -> None:
    other = Database(pooler.url)
    with ThreadPoolExecutor(2) as threads:
        migrations = [threads.submit(one.migrate) for one in (database, other)]
        assert [migration.exception(timeout=600) for migration in migrations] == [None, None]
    other.dispose()
    assert database.has_table("prism_small_objects")
    assert pooler.left_behind() == []


def test_the_lock_of_a_run_is_held_behind_a_pooler_as_long_as_the_run(
    pooler: TransactionPooler, database: Database
) -> None:
    with run_lock(database, RUN):
        for _ in range(8):
            assert runs_without_lock(database, [RUN, "another"]) == {"another"}
    assert runs_without_lock(database, [RUN]) == {RUN}
    assert pooler.left_behind() == []


def test_a_client_that_dies_behind_a_pooler_loses_its_locks(pooler: TransactionPooler, database: Database) -> None:
    engine = create_engine(sqlalchemy.make_url(pooler.url), kept=1, most=1)
    connection = engine.connect()
    connection.execute(text("SELECT pg_advisory_xact_lock(7170001)"))
    driver = connection.connection.driver_connection
    assert driver is not None
    connection.detach()
    driver.close()
    with database.begin() as other:
        other.execute(text("SELECT pg_advisory_xact_lock(7170001)"))
    engine.dispose()
