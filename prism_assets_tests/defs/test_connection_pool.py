"""Dagster's storage keeps a bounded pool per process, and survives the end of its connections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from dagster import DagsterInstance
from dagster._core.instance.ref import InstanceRef
from sqlalchemy import Engine, NullPool, QueuePool, create_engine, event, make_url

from prism_assets.defs.connection_pool import KEPT, MOST
from prism_assets.domain.errors import SettingsError
from prism_assets_tests.engine.waiting import until
from prism_assets_tests.postgres import PostgresServer

PROJECT = Path(__file__).resolve().parents[2]
PLUGIN = "prism_kept_connections"
WATCHER = "test_connection_pool"


@pytest.fixture
def database_url(postgres: PostgresServer) -> Iterator[sqlalchemy.URL]:
    """An empty database: Dagster's tables stand in none of ours."""
    url = postgres.copy_database("template1", "dagster_connections")
    yield make_url(url)
    postgres.drop_database(url)


@pytest.fixture
def instance(
    database_url: sqlalchemy.URL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[DagsterInstance]:
    """An instance by dagster.yaml with this database."""
    named = {"HOST": "host", "PORT": "port", "USER": "username", "PASSWORD": "password", "DB": "database"}
    for name, part in named.items():
        monkeypatch.setenv(f"PRISM_DAGSTER_PG_{name}", str(getattr(database_url, part)))
    monkeypatch.chdir(tmp_path)
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(PROJECT))) as made:
        yield made


def backends(database_url: sqlalchemy.URL) -> set[int]:
    """The sessions of other clients. An earlier session of this function may not have ended yet."""
    url = database_url.set(drivername="postgresql+psycopg")
    engine = create_engine(url, poolclass=NullPool, connect_args={"application_name": WATCHER})
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            f"AND backend_type = 'client backend' AND application_name <> '{WATCHER}'"
        )
        return set(found.scalars())


def test_calls_share_a_connection_that_is_kept(instance: DagsterInstance, database_url: sqlalchemy.URL) -> None:
    instance.get_runs_count()
    kept = backends(database_url)
    for _ in range(3):
        instance.get_runs_count()
    assert kept
    assert backends(database_url) == kept


def test_connections_that_were_ended_are_made_anew(instance: DagsterInstance, database_url: sqlalchemy.URL) -> None:
    instance.get_runs_count()
    before = backends(database_url)
    with create_engine(database_url.set(drivername="postgresql+psycopg"), poolclass=NullPool).connect() as connection:
        for number in before:
            connection.exec_driver_sql(f"SELECT pg_terminate_backend({number}, 5000)")
    assert instance.get_runs_count() == 0
    assert before.isdisjoint(backends(database_url))


def test_instances_of_a_process_share_one_pool(instance: DagsterInstance, database_url: sqlalchemy.URL) -> None:
    """A code server opens an instance for every tick, and the cycle collector may come late."""
    instance.get_runs_count()
    kept = backends(database_url)
    gc.disable()
    try:
        for _ in range(5):
            with DagsterInstance.from_ref(instance.get_ref()) as other:
                assert other.get_runs_count() == 0
                other.event_log_storage.get_maximum_record_id()
                other.all_instigator_state()
            assert backends(database_url) == kept
    finally:
        gc.enable()


def test_more_calls_at_once_than_the_pool_has_connections_wait(
    instance: DagsterInstance, database_url: sqlalchemy.URL
) -> None:
    engine = the_engine_of(instance)
    held = [engine.connect() for _ in range(MOST)]
    try:
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(instance.get_runs_count)
            assert not wait([waiting], timeout=0.5).done
            assert len(backends(database_url)) == MOST
            held.pop().close()
            assert waiting.result(timeout=120) == 0
    finally:
        for connection in held:
            connection.close()
    until(lambda: len(backends(database_url)) <= KEPT, "the end of the sessions beyond those that are kept")
    assert len(backends(database_url)) == KEPT


def test_instances_with_a_password_for_each_connection_share_no_pool(database_url: sqlalchemy.URL) -> None:
    """Dagster adds a listener to each instance's engine, and a shared dialect would keep it for ever."""
    url = database_url.set(drivername="postgresql+psycopg2").update_query_dict({"plugin": PLUGIN})
    first, *others = (an_engine_that_logs_in_by_itself(url) for _ in range(3))
    assert isinstance(first.pool, QueuePool)
    for engine in others:
        assert isinstance(engine.pool, NullPool)
        assert engine.dialect is not first.dialect
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    first.dispose()


def test_a_password_may_be_elsewhere_and_its_engines_share_a_pool(
    database_url: sqlalchemy.URL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(f"{database_url.password}\n")
    named = {"HOST": "host", "PORT": "port", "USER": "username", "DB": "database"}
    for name, part in named.items():
        monkeypatch.setenv(f"PRISM_DAGSTER_PG_{name}", str(getattr(database_url, part)))
    monkeypatch.setenv("PRISM_DAGSTER_PG_PASSWORD", f"file:{secret}")
    monkeypatch.chdir(tmp_path)
    with (
        DagsterInstance.from_ref(InstanceRef.from_dir(str(PROJECT))) as first,
        DagsterInstance.from_ref(InstanceRef.from_dir(str(PROJECT))) as second,
    ):
        assert (first.get_runs_count(), second.get_runs_count()) == (0, 0)
        assert the_engine_of(second).pool is the_engine_of(first).pool
        secret.unlink()
        the_engine_of(first).pool.dispose()
        with pytest.raises(SettingsError, match="with the secret does not exist"):
            the_engine_of(first).connect()


def the_engine_of(instance: DagsterInstance) -> Engine:
    engine = instance.run_storage._engine  # type: ignore[attr-defined]  # of PostgresRunStorage
    assert isinstance(engine, Engine)
    return engine


def an_engine_that_logs_in_by_itself(url: sqlalchemy.URL) -> Engine:
    """Returns an engine like Dagster's with an `auth_provider` in dagster.yaml."""
    engine = create_engine(url, isolation_level="READ COMMITTED", poolclass=NullPool)

    @event.listens_for(engine, "do_connect")
    def _log_in(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> None:
        parameters["password"] = url.password

    return engine


def test_engines_that_have_a_pool_keep_it() -> None:
    pool = create_engine(f"postgresql+psycopg://nobody@nowhere/none?plugin={PLUGIN}", pool_size=7).pool
    assert isinstance(pool, QueuePool)
    assert pool.size() == 7
