"""`prism ducklake`: the output works in DuckDB as pasted, and shows no secret without a request."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from prism_assets.reading.ducklake import attach_line, session_lines
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.ducklake.sessions import duckdb_session as duckdb_session
from prism_assets_tests.ducklake.sessions import new_session as new_session
from prism_local.readers.sessions import DuckDBSession


def of_world(prism: Prism, url: str) -> str:
    """The address of readers, of the database of the test."""
    name = sqlalchemy.make_url(prism.world.settings.database_url.get_secret_value()).database
    return sqlalchemy.make_url(url).set(database=name).render_as_string(hide_password=False)


def test_what_is_printed_opens_the_lake_and_asks(
    prism: Prism, services: Mapping[str, str], duckdb_session: DuckDBSession
) -> None:
    prism.world.apply(a_table())
    prism.world.drop(some_rows(4, utc("2026-03-01T12:00")))
    prism.world.stream("2026-03-01T12:10")
    prism.set(ducklake="on", ducklake_url=of_world(prism, services["PRISM_DUCKLAKE_URL"]))
    done = prism("ducklake", "sql", "--with-secrets")
    assert done.status == 0
    lines = [line for line in done.out.splitlines() if not line.startswith("INSTALL")]
    try:
        assert duckdb_session.run(lines) == [("2026-03-01", 4)]
    finally:
        duckdb_session.query("DETACH lake")


def test_no_secret_is_printed_that_was_not_asked_for(prism: Prism, services: Mapping[str, str]) -> None:
    """With the tests' store and keys; the platform itself does not access the store."""
    url = of_world(prism, services["PRISM_DUCKLAKE_URL"])
    settings = prism.world.settings.model_copy(
        update={"ducklake": True, "ducklake_url": SecretStr(url), "local_root": None, "s3_endpoint": "http://s3:9000"}
    )
    secrets = {str(sqlalchemy.make_url(url).password), "KEY_ID 'test', SECRET 'test'"}
    asked, unasked = ("\n".join(session_lines(settings, with_secrets=given)) for given in (True, False))
    assert {secret for secret in secrets if secret in asked} == secrets
    assert {secret for secret in secrets if secret in unasked} == set()
    assert "ENDPOINT 's3:9000'" in unasked
    on_aws = "\n".join(session_lines(settings.model_copy(update={"s3_endpoint": None})))
    assert "PROVIDER credential_chain" in on_aws
    assert "INSTALL aws" in on_aws


def test_an_address_keeps_how_its_server_is_known_and_what_a_password_is_made_of(prism: Prism) -> None:
    url = "postgresql://prism_reader:p%20w%27x%5C@db:6432/prism?sslmode=verify-full&sslrootcert=/ca.pem&application_name=x"
    settings = prism.world.settings.model_copy(update={"ducklake": True, "ducklake_url": SecretStr(url)})
    line = attach_line(settings, with_secrets=True)
    text = line.partition("ducklake:postgres:")[2].rpartition("' AS lake")[0].replace("''", "'")
    assert conninfo_to_dict(text) == {
        "dbname": "prism", "host": "db", "port": "6432", "user": "prism_reader", "password": "p w'x\\",
        "sslmode": "verify-full", "sslrootcert": "/ca.pem",
    }  # fmt: skip


def test_readers_share_the_address_of_the_platform_under_a_name_of_their_own(prism: Prism) -> None:
    prism.world.apply(a_table())
    prism.set(ducklake="on", ducklake_url=None)
    (attach,) = [line for line in prism("ducklake", "sql", "--json").json if line.startswith("ATTACH")]
    url = sqlalchemy.make_url(prism.world.settings.database_url.get_secret_value())
    assert f"dbname={url.database} host=127.0.0.1 port={url.port} user=prism_reader'" in attach


def test_where_readers_may_not_connect_that_is_said(prism: Prism) -> None:
    prism.world.apply(a_table())
    prism.set(ducklake="off")
    done = prism("ducklake", "sql")
    assert done.status == 2
    assert "PRISM_DUCKLAKE is off" in done.err


def test_the_script_for_the_role_may_be_run_again(prism: Prism) -> None:
    """Except for the password, which psql inserts."""
    done = prism("ducklake", "role")
    assert prism("ducklake", "role", "--json").json == {"script": done.out.removesuffix("\n")}
    statements = [line for line in done.out.splitlines() if ":'password'" not in line]
    assert len(statements) == len(done.out.splitlines()) - 1
    url = prism.world.settings.database_url.get_secret_value().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


def test_the_owner_grants_the_views_on_request_alone(prism: Prism) -> None:
    shown = (
        "SELECT has_schema_privilege('prism_reader', 'prism_lake', 'USAGE'), "
        "has_table_privilege('prism_reader', 'prism_lake.ducklake_table', 'SELECT')"
    )
    url = prism.world.settings.database_url.get_secret_value().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("REVOKE ALL ON ALL TABLES IN SCHEMA prism_lake FROM prism_reader")
        session.execute("REVOKE ALL ON SCHEMA prism_lake FROM prism_reader")
        prism.world.context.database.migrate()
        assert session.execute(shown).fetchone() == (False, False), "an administrator has shut readers out"
        done = prism("ducklake", "role", "--grant")
        assert (done.status, done.out) == (0, "prism_reader reads the views of this database\n"), done.err
        assert session.execute(shown).fetchone() == (True, True)
