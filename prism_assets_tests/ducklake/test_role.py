"""The role of readers sees the views and may do nothing else, on any server and whoever creates the role."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from prism_assets import metadata
from prism_assets.domain.names import LAKE_READER
from prism_assets.metadata.database import Database
from prism_assets.metadata.iceberg import lake_role
from prism_assets.metadata.iceberg.lake_role import GRANT_VIEWS, MAKE_ROLE, MOST_SESSIONS, role_script
from prism_assets_tests.postgres import PostgresServer

REFUSED = {
    "a row of a view": "INSERT INTO prism_lake.ducklake_metadata (key, value) VALUES ('a', 'b')",
    "an object to delete": "INSERT INTO prism_lake.ducklake_files_scheduled_for_deletion VALUES (1, 'k', true, now())",
    "an end of an object": "UPDATE prism_lake.ducklake_data_file SET end_snapshot = 1",
    "a deletion": "DELETE FROM prism_lake.ducklake_data_file",
    "a truncation": "TRUNCATE prism_small_objects",
    "a table among the views": "CREATE TABLE prism_lake.ducklake_inlined_data_1_1 (a int)",
    "a table": "CREATE TABLE made (a int)",
    "a schema": "CREATE SCHEMA made",
    "a function": "CREATE FUNCTION made() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "another view": "CREATE OR REPLACE VIEW prism_lake.ducklake_metadata AS SELECT 1",
    "a view less": "DROP VIEW prism_lake.ducklake_metadata",
    "a right": "GRANT SELECT ON prism_small_objects TO PUBLIC",
    "another role": "CREATE ROLE made",
    "the owner's role": "SET ROLE prism",
    "small objects": "SELECT * FROM prism_small_objects",
    "the view behind the views": "SELECT * FROM prism_lake_files",
    "definitions": "SELECT * FROM prism_table_definitions",
    "staging objects": "SELECT * FROM prism_staging_objects",
    "quarantined lines": "SELECT * FROM prism_quarantine",
    "the catalog of Iceberg": "SELECT * FROM iceberg_tables",
    "passwords": "SELECT rolpassword FROM pg_authid",
    "files of the server": "SELECT pg_read_file('PG_VERSION')",
    "a program": "COPY (SELECT 1) TO PROGRAM 'true'",
    "other sessions": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'prism'",
    "a lock of ours": "BEGIN; LOCK TABLE prism_partitions IN SHARE MODE",
}


@pytest.fixture(scope="module")
def owner(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="module")
def reader(owner: str, services: Mapping[str, str]) -> str:
    name = sqlalchemy.make_url(owner).database
    return sqlalchemy.make_url(services["PRISM_DUCKLAKE_URL"]).set(database=name).render_as_string(hide_password=False)


@pytest.mark.parametrize("what", REFUSED)
def test_the_role_is_refused(owner: str, reader: str, what: str) -> None:
    """By its rights alone, without its default of read-only transactions."""
    statement = REFUSED[what]
    with psycopg.connect(owner.replace("+psycopg", "")), psycopg.connect(reader, autocommit=True) as session:
        session.execute("SET default_transaction_read_only = off")
        refused = (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState)
        with pytest.raises(refused):
            session.execute(statement)


def test_the_role_reads_every_view(reader: str) -> None:
    with psycopg.connect(reader, autocommit=True) as session:
        names = session.execute("SELECT viewname FROM pg_views WHERE schemaname = 'prism_lake'").fetchall()
        for (name,) in names:
            session.execute(f"SELECT * FROM prism_lake.{name}")
    assert len(names) == 28


def test_no_session_of_the_role_lasts_for_ever(reader: str, owner: str) -> None:
    """An open transaction would delay vacuum, and its objects may be deleted after the reader lease."""
    with psycopg.connect(reader, autocommit=True) as session:
        found = {
            name: session.execute(f"SHOW {name}").fetchone()
            for name in (
                "statement_timeout",
                "idle_in_transaction_session_timeout",
                "idle_session_timeout",
                "default_transaction_read_only",
            )
        }
    assert found == {
        "statement_timeout": ("5min",),
        "idle_in_transaction_session_timeout": ("5min",),
        "idle_session_timeout": ("1h",),
        "default_transaction_read_only": ("on",),
    }
    with psycopg.connect(owner.replace("+psycopg", "")) as session:
        limit = session.execute("SELECT rolconnlimit FROM pg_roles WHERE rolname = %s", [LAKE_READER]).fetchone()
    assert limit == (MOST_SESSIONS,)


def test_a_transaction_that_stands_still_is_ended(reader: str) -> None:
    with psycopg.connect(reader) as session:
        session.execute("SET idle_in_transaction_session_timeout = '50ms'")
        time.sleep(0.5)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            session.execute("SELECT 1")


def making_the_role() -> str:
    """Returns the end of the schema, where a migration creates the role and grants it the views."""
    schema = Path(metadata.__file__).with_name("schema.sql").read_text("utf-8")
    return schema[schema.index("-- The role of readers.") :]


@pytest.fixture
def plain_owner(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database whose owner may not create roles."""
    admin = sqlalchemy.make_url(postgres.url)
    with psycopg.connect(postgres.url.replace("+psycopg", ""), autocommit=True) as session:
        session.execute("CREATE ROLE plain_owner LOGIN PASSWORD 'plain'")
        session.execute("CREATE DATABASE of_plain_owner OWNER plain_owner")
    yield admin.set(username="plain_owner", password="plain", database="of_plain_owner").render_as_string(
        hide_password=False
    )
    with psycopg.connect(postgres.url.replace("+psycopg", ""), autocommit=True) as session:
        session.execute("DROP DATABASE of_plain_owner WITH (FORCE)")
        session.execute("DROP ROLE plain_owner")


def test_an_owner_who_may_make_no_roles_migrates_and_is_told(plain_owner: str) -> None:
    """The server already has the role, so the statements are tried with a missing one."""
    database = Database(plain_owner)
    database.migrate()
    database.dispose()
    notices: list[str] = []
    with psycopg.connect(plain_owner.replace("+psycopg", ""), autocommit=True) as session:
        session.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        session.execute(making_the_role().replace(LAKE_READER, "reader_of_nobody").encode())
        assert session.execute("SELECT to_regrole('reader_of_nobody')").fetchone() == (None,)
        granted = session.execute(
            "SELECT has_schema_privilege(%(r)s, 'prism_lake', 'USAGE'), "
            "has_table_privilege(%(r)s, 'prism_lake.ducklake_table', 'SELECT')",
            {"r": LAKE_READER},
        )
        assert granted.fetchone() == (True, True)
    (notice,) = notices
    assert "was not made, as plain_owner may not make roles" in notice
    assert "`prism ducklake role`" in notice


def test_what_a_migration_makes_and_what_an_administrator_runs_is_one_role(owner: str) -> None:
    described = (
        "SELECT rolconnlimit, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, "
        "(SELECT array_agg(c ORDER BY c) FROM unnest(setconfig) c) FROM pg_roles r "
        "LEFT JOIN pg_db_role_setting s ON s.setrole = r.oid WHERE rolname = %s"
    )
    with psycopg.connect(owner.replace("+psycopg", ""), autocommit=True) as session:
        session.execute(making_the_role().replace(LAKE_READER, "made_by_migration").encode())
        for statement in (*MAKE_ROLE, *GRANT_VIEWS):
            session.execute(statement.replace(LAKE_READER, "made_by_hand"))
        rows = [session.execute(described, [name]).fetchone() for name in ("made_by_migration", "made_by_hand")]
        for name in ("made_by_migration", "made_by_hand"):
            session.execute(f"DROP OWNED BY {name}")
            session.execute(f"DROP ROLE {name}")
    assert rows[0] == rows[1]
    assert "PASSWORD :'password'" in role_script()


@pytest.mark.parametrize("may_read", [False, True])
def test_an_administrator_of_a_hosted_server_makes_the_role_and_the_owner_grants_its_views(
    postgres: PostgresServer, plain_owner: str, may_read: bool
) -> None:
    """On RDS the administrator is no superuser, and no member of the owner's role."""
    database = Database(plain_owner)
    database.migrate()
    as_admin = sqlalchemy.make_url(plain_owner).set(drivername="postgresql", username="hosted_admin", password="hosted")
    superuser = postgres.url.replace("+psycopg", "")
    renamed = (lake_role.role_script().replace(LAKE_READER, "hosted_reader")).replace(":'password'", "'secret'")
    with psycopg.connect(superuser, autocommit=True) as session:
        session.execute("CREATE ROLE hosted_admin LOGIN CREATEROLE CREATEDB PASSWORD 'hosted'")
        if may_read:
            session.execute("GRANT pg_read_all_data TO hosted_admin")
    try:
        notices: list[str] = []
        with psycopg.connect(as_admin.render_as_string(hide_password=False), autocommit=True) as session:
            session.add_notice_handler(
                lambda notice: notices.append(notice.message_primary or "") if notice.severity == "NOTICE" else None
            )
            for _ in range(2):
                for statement in renamed.splitlines():
                    session.execute(statement.encode())
        assert notices == ["the views are granted by their owner: run `prism ducklake role --grant`"] * 2
        with psycopg.connect(plain_owner.replace("+psycopg", ""), autocommit=True) as session:
            for statement in GRANT_VIEWS:
                session.execute(statement.replace(LAKE_READER, "hosted_reader").encode())
        as_reader = as_admin.set(username="hosted_reader", password="secret")
        with psycopg.connect(as_reader.render_as_string(hide_password=False), autocommit=True) as session:
            session.execute("SELECT * FROM prism_lake.ducklake_table")
            shown = session.execute("SHOW default_transaction_read_only").fetchone()
        assert shown == ("on",)
    finally:
        database.dispose()
        with psycopg.connect(plain_owner.replace("+psycopg", ""), autocommit=True) as session:
            session.execute("REVOKE ALL ON ALL TABLES IN SCHEMA prism_lake FROM hosted_reader")
            session.execute("REVOKE ALL ON SCHEMA prism_lake FROM hosted_reader")
        with psycopg.connect(superuser, autocommit=True) as session:
            session.execute("DROP ROLE IF EXISTS hosted_reader")
            session.execute("DROP ROLE hosted_admin")
