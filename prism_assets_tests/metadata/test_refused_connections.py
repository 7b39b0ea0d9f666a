"""Sessions that never begin: the error has the server's own sentence and the remedy."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy

from prism_assets.domain.errors import DatabaseUnavailable, PrismError, TerminalError
from prism_assets.local_stack import is_local
from prism_assets.metadata.database import Database
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.transaction_pooler import transaction_pooler

CANARY = "canary-7"
HBA = 'no pg_hba.conf entry for host "10.0.0.7", user "prism", database "prism", no encryption'
SENTENCES: dict[str, tuple[type[PrismError], str]] = {
    HBA: (TerminalError, "?sslmode=require"),
    'pg_hba.conf rejects connection for host "10.0.0.7", user "prism", database "prism", no encryption': (
        TerminalError,
        "?sslmode=require",
    ),
    'password authentication failed for user "prism"': (TerminalError, "check user and password"),
    'PAM authentication failed for user "prism"': (TerminalError, "grant rds_iam to the user"),
    'role "prism" does not exist': (TerminalError, "check user and password"),
    'role "prism" is not permitted to log in': (TerminalError, "check user and password"),
    'database "prism" does not exist': (TerminalError, "create it, or correct the name"),
    'permission denied for database "prism"': (TerminalError, "grant the right to connect"),
    "no such database: prism": (TerminalError, "create it, or correct the name"),
    "no such user: prism": (TerminalError, "check user and password"),
    "SSL required": (TerminalError, "check sslmode and the certificates"),
    "the database system is starting up": (DatabaseUnavailable, "repeat later"),
    "the database system is not yet accepting connections": (DatabaseUnavailable, "repeat later"),
    "no more connections allowed (max_client_conn)": (DatabaseUnavailable, "repeat later"),
    "a sentence of a later version": (DatabaseUnavailable, "repeat later"),
}


@contextmanager
def refusing(sentence: str, *, tls: bytes = b"N") -> Iterator[str]:
    """Returns the address of a server that refuses TLS and then every login with one sentence, with the password."""
    content = b"SFATAL\0VFATAL\0C00000\0M" + sentence.encode() + b"\0\0"
    answer = b"E" + struct.pack("!I", len(content) + 4) + content

    def answer_all() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                while (asked := client.recv(8, socket.MSG_WAITALL)) and struct.unpack("!II", asked)[1] != 196_608:
                    client.sendall(tls)
                if asked:
                    client.recv(struct.unpack_from("!I", asked)[0] - 8, socket.MSG_WAITALL)
                    client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_all)
        thread.start()
        try:
            yield f"postgresql+psycopg://prism:{CANARY}@127.0.0.1:{listener.getsockname()[1]}/prism"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def said(url: str, kind: type[PrismError]) -> str:
    """Returns the error of a database's first use, without the password."""
    database = Database(url)
    with pytest.raises(kind) as caught:
        database.has_table("prism_tables")
    database.dispose()
    assert CANARY not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_sentence_of_a_server_that_refuses_is_told(sentence: str) -> None:
    kind, advice = SENTENCES[sentence]
    with refusing(sentence) as url:
        told = said(url, kind)
    assert sentence in told
    assert advice in told
    assert "prism local up" not in told
    assert "does not answer" not in told


def test_a_password_that_a_server_repeats_is_not_told() -> None:
    with refusing(f"what is {CANARY}?") as url:
        assert "what is …?" in said(url, DatabaseUnavailable)


def test_the_address_that_answered_is_told_before_the_one_that_did_not() -> None:
    """The driver's message begins with the last address tried."""
    with refusing(HBA) as address:
        url = sqlalchemy.make_url(address)
        hosts = url.set(host=None, port=None).update_query_dict({"host": (f"127.0.0.1:{url.port}", "127.0.0.1:1")})
        told = said(hosts.render_as_string(hide_password=False), TerminalError)
    assert HBA in told


def test_a_tls_that_the_server_does_not_speak_is_told(postgres: PostgresServer) -> None:
    url = sqlalchemy.make_url(postgres.url).update_query_dict({"sslmode": "require"})
    told = said(url.render_as_string(hide_password=False), TerminalError)
    assert "server does not support SSL, but SSL was required; check sslmode" in told


def test_a_server_that_is_no_postgresql_is_told() -> None:
    with refusing("", tls=b"HTTP/1.1 400 Bad Request") as url:
        assert "no PostgreSQL answers there: check the port" in said(url, TerminalError)


def test_a_word_in_the_address_that_means_nothing_is_told(postgres: PostgresServer) -> None:
    url = sqlalchemy.make_url(postgres.url).update_query_dict({"bogus": "1"})
    told = said(url.render_as_string(hide_password=False), TerminalError)
    assert told == 'PRISM_DATABASE_URL is wrong: invalid connection option "bogus"'


def test_a_setting_of_the_address_that_a_pooler_refuses_is_told(database_url: str) -> None:
    with transaction_pooler(database_url) as pooler:
        url = sqlalchemy.make_url(pooler.url).update_query_dict({"options": "-c search_path=prism"})
        told = said(url.render_as_string(hide_password=False), TerminalError)
    assert "unsupported startup parameter: options; take the options out of PRISM_DATABASE_URL" in told


def test_only_a_server_of_the_local_stack_is_started_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_HOME", str(tmp_path))
    url = f"postgresql+psycopg://prism:{CANARY}@127.0.0.1:1/prism"
    asked = "check that it runs, PRISM_DATABASE_URL and the network, then repeat"
    assert said(url, DatabaseUnavailable) == f"PostgreSQL at 127.0.0.1:1 does not answer (Connection refused): {asked}"
    (tmp_path / "env").write_text(f"PRISM_DATABASE_URL={url}\nPRISM_SPARK_REMOTE=sc://localhost:7\nPRISM_DUCKLAKE=on\n")
    assert said(url, DatabaseUnavailable).endswith("(Connection refused): start it (`prism local up`), then repeat")
    assert [is_local(address) for address in ("sc://127.0.0.1:7", "localhost:1", "[::1]:7", "127.0.0.1:2", "db:1")] == [
        True,
        True,
        True,
        False,
        False,
    ]
