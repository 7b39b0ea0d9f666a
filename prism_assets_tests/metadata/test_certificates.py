"""sslmode=verify-full: a good certificate serves, and each bad one is told in one sentence before any login."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy

from prism_assets.domain.errors import TerminalError
from prism_assets.metadata.database import Database
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.metadata.worlds import world as world
from prism_assets_tests.tls_front import Authority, tls_front
from prism_assets_tests.world import World

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path, "ours")


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path, "stranger")


def verified(url: str, port: int, roots: Path | str) -> str:
    """The address of a database through a front, with the strictest mode."""
    strict = {"sslmode": "verify-full", "sslrootcert": str(roots)}
    front = sqlalchemy.make_url(url).set(host=HOST, port=port).update_query_dict(strict)
    return front.render_as_string(hide_password=False)


def server(url: str) -> tuple[str, int]:
    parsed = sqlalchemy.make_url(url)
    return parsed.host or HOST, parsed.port or 5432


def refusal(url: str) -> str:
    database = Database(url)
    with pytest.raises(TerminalError) as refused:
        database.has_table("prism_tables")
    database.dispose()
    assert len(str(refused.value).splitlines()) == 1
    return str(refused.value)


def test_a_good_certificate_serves(database_url: str, authority: Authority) -> None:
    with tls_front(server(database_url), authority.certificate(HOST)) as port:
        database = Database(verified(database_url, port, authority.file))
        assert database.has_table("prism_tables")
        database.dispose()


def test_the_variables_of_libpq_do_as_well(
    database_url: str, authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(authority.file))
    for issuer, trusted in ((authority, True), (stranger, False)):
        with tls_front(server(database_url), issuer.certificate(HOST)) as port:
            url = sqlalchemy.make_url(database_url).set(port=port).render_as_string(hide_password=False)
            if trusted:
                database = Database(url)
                assert database.has_table("prism_tables")
                database.dispose()
            else:
                assert "an authority that sslrootcert does not hold" in refusal(url)


def test_each_bad_certificate_is_told_by_its_fault(
    database_url: str, authority: Authority, stranger: Authority
) -> None:
    cases = {
        "its certificate is for another host: correct the host": authority.certificate("db.example"),
        "an authority that sslrootcert does not hold: add that authority": stranger.certificate(HOST),
        "its certificate has expired: renew it on the server": authority.certificate(HOST, days=-1),
    }
    for sentence, certificate in cases.items():
        with tls_front(server(database_url), certificate) as port:
            told = refusal(verified(database_url, port, authority.file))
        assert sentence in told
        assert f"PostgreSQL at {HOST}:{port} was not trusted, and no password was sent" in told
    with tls_front(server(database_url), authority.certificate(HOST)) as port:
        missing = refusal(verified(database_url, port, "/nowhere.crt"))
    assert "name the file of the authorities by sslrootcert" in missing


def test_a_command_ends_with_the_sentence_and_begins_nothing(
    world: World, authority: Authority, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prism = Prism(world, monkeypatch, capsys)
    url = world.settings.database_url.get_secret_value()
    with tls_front(server(url), authority.certificate(HOST, days=-1)) as port:
        prism.set(database_url=verified(url, port, authority.file))
        done = prism("run")
    assert (done.status, done.out) == (1, "")
    assert "its certificate has expired: renew it on the server" in done.err
    assert not (world.root / "buckets" / "lake" / "prism-installation.json").exists()
