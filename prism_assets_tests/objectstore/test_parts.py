"""Long, slow, silent or changing objects, for the Rust client and for boto3, which reads odd keys."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from prism_assets.domain.errors import ObjectChanged, StoreUnavailable, TerminalError
from prism_assets.objectstore import stores as stores_module
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets_tests.objectstore.slow_server import SlowServer

BODY = os.urandom(600_000)
PART = 100_000
PATH, NO_PATH = "a/b", "a//b"

with_both_clients = pytest.mark.parametrize("key", [PATH, NO_PATH])


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")


def stores_of(server: SlowServer, *, retry_seconds: float = 0.1) -> Stores:
    return Stores(StoreConfig(endpoint=server.endpoint, retry_seconds=retry_seconds, silence_seconds=0.5))


@with_both_clients
def test_an_object_may_take_longer_than_any_of_its_requests_may(key: str) -> None:
    with SlowServer(BODY, bytes_per_second=300_000, longest=0.8).running() as server:
        stores = stores_of(server)
        started = time.monotonic()
        assert b"".join(stores.get_chunks("lake", key, chunk=PART)) == BODY
        assert time.monotonic() - started > 1.6


@with_both_clients
def test_a_reader_may_take_longer_than_any_request_may(key: str) -> None:
    with SlowServer(BODY, longest=0.5).running() as server:
        pieces = []
        for piece in stores_of(server).get_chunks("lake", key, chunk=PART):
            pieces.append(piece)
            time.sleep(0.3)
        assert b"".join(pieces) == BODY
        assert len(server.requests) == 6


@with_both_clients
def test_silence_is_given_up_soon_and_the_rest_is_asked_for_again(key: str) -> None:
    with SlowServer(BODY, silent=frozenset([1, 2])).running() as server:
        stores = stores_of(server, retry_seconds=5)
        started = time.monotonic()
        assert b"".join(stores.get_chunks("lake", key, chunk=PART)) == BODY
        assert time.monotonic() - started < 10
        assert len(server.requests) == 8


@with_both_clients
def test_an_answer_that_breaks_off_is_asked_for_again(key: str) -> None:
    with SlowServer(BODY, cut=frozenset([0, 2])).running() as server:
        assert b"".join(stores_of(server, retry_seconds=5).get_chunks("lake", key, chunk=PART)) == BODY


@with_both_clients
def test_a_server_that_stays_silent_is_no_answer(key: str) -> None:
    with SlowServer(BODY, silent=frozenset(range(1, 99))).running() as server:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"the object store.* (did not answer|broke off)"):
            list(stores_of(server).get_chunks("lake", key, chunk=PART))
        assert time.monotonic() - started < 15


@with_both_clients
@pytest.mark.parametrize("known", [True, False])
def test_parts_of_two_objects_never_mix(key: str, known: bool) -> None:
    with SlowServer(BODY, changes=os.urandom(len(BODY))).running() as server:
        pieces: list[bytes] = []
        reading = stores_of(server).get_chunks("lake", key, etag=server.etag if known else None, chunk=PART)
        with pytest.raises(ObjectChanged, match="is no longer the object that was discovered"):
            pieces.extend(reading)
        assert BODY.startswith(b"".join(pieces))


@with_both_clients
@pytest.mark.parametrize("length", [None, 600_000])
def test_all_of_an_object_is_read_also_where_its_length_is_known(key: str, length: int | None) -> None:
    with SlowServer(BODY).running() as server:
        stores = stores_of(server)
        assert b"".join(stores.get_chunks("lake", key, length=length, chunk=PART)) == BODY
        assert stores.get("lake", key, length=length) == BODY
        if key == PATH:
            assert server.requests[0] == ("" if length is None else "bytes=0-99999")
            assert stores.read_version("lake", key) == (BODY, server.etag)


@with_both_clients
@pytest.mark.parametrize("length", [0, 1, PART - 1, PART, PART + 1, 3 * PART])
def test_an_object_of_any_length_is_read_to_its_end(key: str, length: int, tmp_path: Path) -> None:
    with SlowServer(BODY[:length]).running() as server:
        assert b"".join(stores_of(server).get_chunks("lake", key, chunk=PART)) == BODY[:length]
        assert len(server.requests) <= max(1, -(-length // PART))
    if key == PATH:
        (tmp_path / "lake").mkdir()
        folder = Stores(StoreConfig(local_root=str(tmp_path), object_tags=False))
        folder.put("lake", key, BODY[:length])
        assert b"".join(folder.get_chunks("lake", key, chunk=PART)) == BODY[:length]


def test_an_object_that_is_empty_by_now_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    folder = Stores(StoreConfig(local_root=str(tmp_path), object_tags=False))
    folder.put("lake", PATH, b"")
    with SlowServer(b"").running() as server:
        for stores in (stores_of(server), folder):
            with pytest.raises(ObjectChanged):
                list(stores.get_chunks("lake", PATH, length=len(BODY), chunk=PART))
            assert stores.get("lake", PATH) == b""


def test_a_long_write_has_the_time_that_its_length_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "_LEAST_WRITE", 1)
    monkeypatch.setattr(stores_module, "_SLOWEST_WRITE", 1_000_000)
    long = os.urandom(6_000_000)
    with SlowServer(b"", bytes_per_second=2_000_000).running() as server:
        stores = stores_of(server)
        assert stores.put_new("lake", PATH, long)
        assert server.written == [long]
        server.bytes_per_second = 1000
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            stores.put_new("lake", PATH, BODY)
        assert time.monotonic() - started < 5


def test_what_s3_does_not_take_in_one_write_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "_MOST_WRITTEN", 10)
    with SlowServer(b"").running() as server, pytest.raises(TerminalError, match="S3 takes 5 GiB in one write"):
        stores_of(server).put_new("lake", PATH, b"x" * 11)
