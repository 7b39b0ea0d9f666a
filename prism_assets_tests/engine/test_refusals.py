"""What a person reads when a Spark Connect server refuses, breaks off or is not there: no word of gRPC's own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect import proto

from prism_assets.domain.errors import EngineFailed, EngineUnavailable, PrismError
from prism_assets.engine import sessions
from prism_assets.engine.sessions import connect, open_session
from prism_assets.engine.spark import SparkEngine
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake

pytestmark = pytest.mark.filterwarnings("default")  # pyspark calls what is deprecated
LAKE = Lake("lake", "", StoreConfig())


class _Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Lets sessions begin, and ends every job with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def service(self, call: Any) -> Any:
        if call.method.endswith("/Config"):
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: proto.ConfigResponse(session_id=request.session_id),
                request_deserializer=proto.ConfigRequest.FromString,
                response_serializer=proto.ConfigResponse.SerializeToString,
            )
        kind = "stream" if call.method.endswith(("ExecutePlan", "ReattachExecute")) else "unary"
        handler = getattr(grpc, f"unary_{kind}_rpc_method_handler")
        return handler(lambda request, context: context.abort(self._code, self._details))


@contextmanager
def spark_that_refuses(code: grpc.StatusCode, details: str) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Refusing(code, details),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"sc://localhost:{port}"
    finally:
        server.stop(None).wait()


@contextmanager
def a_session(remote: str) -> Iterator[SparkSession]:
    """A session of its own: the one that a process shares would still be that of another server."""
    session = open_session(remote, lambda address: SparkSession.builder.remote(address).create())
    try:
        yield session
    finally:
        session.stop()


@pytest.mark.parametrize(
    ("code", "details", "kind", "sentence"),
    [
        (grpc.StatusCode.INTERNAL, "a worker\n died", EngineFailed, "the Spark job died: internal: a worker died"),
        (grpc.StatusCode.UNKNOWN, "", EngineFailed, "the Spark job died: unknown"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "it sleeps",
            EngineUnavailable,
            "Spark does not answer: start it (`prism local up`) or check PRISM_SPARK_REMOTE (unavailable: it sleeps)",
        ),
        (
            grpc.StatusCode.UNAUTHENTICATED,
            "no",
            EngineUnavailable,
            "Spark refused the token: check SPARK_CONNECT_AUTHENTICATE_TOKEN",
        ),
    ],
)
def test_a_server_that_ends_a_job(code: Any, details: str, kind: type[PrismError], sentence: str) -> None:
    with spark_that_refuses(code, details) as remote, a_session(remote) as session, pytest.raises(kind) as caught:
        SparkEngine(LAKE, lambda: session).probe()
    assert str(caught.value) == sentence


def test_a_server_that_is_stopped_between_two_jobs() -> None:
    with spark_that_refuses(grpc.StatusCode.INTERNAL, "") as remote:
        session = open_session(remote, lambda address: SparkSession.builder.remote(address).create())
    with pytest.raises(EngineUnavailable) as caught:
        SparkEngine(LAKE, lambda: session).probe()
    assert str(caught.value).endswith("or check PRISM_SPARK_REMOTE (unavailable: Connection refused)")
    session.stop()


@dataclass
class _Silent(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Lets sessions begin; a job of it neither ends nor says anything."""

    over: threading.Event

    def service(self, call: Any) -> Any:
        if not call.method.endswith("/Config"):
            self.over.wait()
        return _Refusing(grpc.StatusCode.INTERNAL, "it is over").service(call)


class _Cable:
    """A connection that can be cut without a word to either side: nothing gets through, and nobody hangs up."""

    def __init__(self, port: int) -> None:
        self._server_port, self._cut = port, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not end an accept
        self._listener.close()

    def close(self) -> None:
        self.cut()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._server_port))
                self._ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, start: socket.socket, end: socket.socket) -> None:
        with suppress(OSError):
            while data := start.recv(65_536):
                if self._cut.is_set():
                    self._cut.wait()
                    continue
                end.sendall(data)


def test_a_host_that_is_gone_without_a_word_ends_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a power cut, or behind a firewall that forgets: no connection is closed, and nothing comes any more."""
    monkeypatch.setattr(sessions, "_SILENCE_SECONDS", 2)
    monkeypatch.setattr(sessions, "_PING_SECONDS", 1)
    over = threading.Event()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Silent(over),))
    cable = _Cable(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    try:
        with a_session(f"sc://localhost:{cable.port}") as session:
            threading.Timer(1, cable.cut).start()
            began = time.monotonic()
            with pytest.raises(EngineUnavailable):
                SparkEngine(LAKE, lambda: session).probe()
            assert time.monotonic() - began < 40
    finally:
        over.set()
        cable.close()
        server.stop(None).wait()


def test_a_port_that_listens_with_no_server_behind_it_is_told_at_once() -> None:
    """A load balancer answers each call with UNAVAILABLE, which the client would take for something that passes."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Unavailable(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    began = time.monotonic()
    try:
        with pytest.raises(EngineUnavailable, match="no healthy upstream"):
            SparkEngine(LAKE, lambda: connect(f"sc://localhost:{port}")).probe()
    finally:
        server.stop(None).wait()
    assert time.monotonic() - began < 15


def test_a_port_that_listens_and_says_nothing_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_ANSWER_SECONDS", 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(EngineUnavailable, match="Spark does not answer"),
    ):
        SparkEngine(LAKE, lambda: connect(f"sc://localhost:{mute.getsockname()[1]}")).probe()


class _Unavailable(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, call: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.UNAVAILABLE, "no healthy upstream")
        )


def test_a_port_that_nobody_listens_at() -> None:
    with pytest.raises(EngineUnavailable) as caught:
        SparkEngine(LAKE, lambda: connect("sc://localhost:1")).probe()
    assert str(caught.value).endswith("or check PRISM_SPARK_REMOTE (Connection refused)")
