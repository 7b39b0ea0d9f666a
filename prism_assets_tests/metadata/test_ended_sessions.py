"""Sessions ended by PostgreSQL or the network: the error names the cause and the remedy."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Connection, text

from prism_assets.domain.errors import DatabaseUnavailable
from prism_assets.metadata.database import Database
from prism_assets_tests.postgres import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    made = postgres.create_database()
    yield made
    postgres.drop_database(made)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    made = Database(url)
    yield made
    made.dispose()


def end(database: Database, connection: Connection) -> None:
    """Ends the session of a connection, as an administrator does."""
    pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with database.begin() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})


@pytest.mark.parametrize("way", [Database.begin, Database.repeatable_read, Database.outside_transactions])
def test_sessions_that_ended_between_transactions_are_replaced(
    database: Database, url: str, way: Callable[[Database], AbstractContextManager[Connection]]
) -> None:
    """As after a restart of the server: all kept sessions are gone, and no transaction notices."""
    with ExitStack() as stack:
        held = [stack.enter_context(database.begin()) for _ in range(3)]
        pids = [connection.execute(text("SELECT pg_backend_pid()")).scalar_one() for connection in held]
    other = Database(url)
    with other.begin() as connection:
        for pid in pids:
            connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
    other.dispose()
    for _ in range(3):
        with way(database) as connection:
            assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() not in pids


def test_a_statement_outside_transactions_is_kept_also_after_a_replaced_session(database: Database, url: str) -> None:
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE kept (number int)"))
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    other = Database(url)
    with other.begin() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
    with database.outside_transactions() as connection:
        connection.execute(text("INSERT INTO kept VALUES (1)"))
        connection.execute(text("VACUUM kept"))
    with other.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM kept")).scalar_one() == 1
    other.dispose()


def test_a_session_that_an_administrator_ended(database: Database) -> None:
    def work() -> None:
        with database.begin() as connection:
            end(database, connection)
            connection.execute(text("SELECT 1"))

    with pytest.raises(DatabaseUnavailable, match="ended this session: an administrator terminated it") as caught:
        work()
    assert str(caught.value).endswith("nothing is half done, repeat")


def test_a_session_that_stood_still_for_too_long(database: Database) -> None:
    def work() -> None:
        with database.begin() as connection:
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 50"))
            time.sleep(0.3)

    with pytest.raises(DatabaseUnavailable, match=r"ended this session, which stood still .* idle_in_transaction"):
        work()


def test_a_statement_behind_the_end_of_its_session_is_not_told_as_a_server_that_is_away(database: Database) -> None:
    """The holder of a session finds it closed at the next statement, while the server is well."""

    def work() -> None:
        with database.begin() as connection:
            raw: Any = connection.connection.dbapi_connection
            end(database, connection)
            with pytest.raises(psycopg.errors.AdminShutdown):
                raw.execute("SELECT 1")
            connection.execute(text("SELECT 1"))

    with pytest.raises(DatabaseUnavailable, match="was cut in the middle; nothing is half done, repeat"):
        work()


def test_a_connection_that_the_network_cut(url: str) -> None:
    target = sqlalchemy.make_url(url)
    with a_relay(str(target.host), int(target.port or 5432)) as (port, cut):
        database = Database(target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False))

        def work() -> None:
            with database.begin() as connection:
                connection.execute(text("SELECT 1"))
                cut()
                connection.execute(text("SELECT 1"))

        with pytest.raises(DatabaseUnavailable, match=f"the connection to PostgreSQL at 127.0.0.1:{port} was cut"):
            work()
        database.dispose()


@contextmanager
def a_relay(host: str, port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """Passes one connection to a server. Yields the port, and a function that cuts the connection."""
    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pass_on() -> None:
            ends.append(listener.accept()[0])
            ends.append(socket.create_connection((host, port)))
            for source, sink in (ends, ends[::-1]):
                threading.Thread(target=copy, args=(source, sink), daemon=True).start()

        def cut() -> None:
            for item in ends:
                item.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=pass_on, daemon=True).start()
        yield listener.getsockname()[1], cut
    for item in ends:
        item.close()


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Passes data until the end."""
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
    except OSError:
        return


def test_a_host_that_nobody_knows() -> None:
    database = Database("postgresql+psycopg://prism@nowhere.invalid/prism")
    with pytest.raises(DatabaseUnavailable, match=r"the host nowhere\.invalid is not known: check PRISM_DATABASE_URL"):
        database.has_table("prism_tables")
    database.dispose()
