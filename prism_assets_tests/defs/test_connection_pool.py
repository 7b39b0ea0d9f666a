"""Dagster's storage keeps its connections, and survives that they are ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from dagster import DagsterInstance
from dagster._core.instance.ref import InstanceRef
from sqlalchemy import NullPool, QueuePool, create_engine, make_url

from prism_assets_tests.postgres import PostgresServer

PROJECT = Path(__file__).resolve().parents[2]
PLUGIN = "prism_kept_connections"


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
    """As dagster.yaml says, with that database."""
    named = {"HOST": "host", "PORT": "port", "USER": "username", "PASSWORD": "password", "DB": "database"}
    for name, part in named.items():
        monkeypatch.setenv(f"PRISM_DAGSTER_PG_{name}", str(getattr(database_url, part)))
    monkeypatch.chdir(tmp_path)
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(PROJECT))) as made:
        yield made


def backends(database_url: sqlalchemy.URL) -> set[int]:
    """The sessions of others."""
    engine = create_engine(database_url.set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
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


def test_engines_that_have_a_pool_keep_it() -> None:
    pool = create_engine(f"postgresql+psycopg://nobody@nowhere/none?plugin={PLUGIN}", pool_size=7).pool
    assert isinstance(pool, QueuePool)
    assert pool.size() == 7
