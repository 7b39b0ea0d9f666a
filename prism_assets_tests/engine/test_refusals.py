"""What a person reads when a Spark Connect server refuses, breaks off or is not there: no word of gRPC's own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect import proto

from prism_assets.domain.errors import EngineFailed, EngineUnavailable, PrismError
from prism_assets.engine.sessions import connect, open_session
from prism_assets.engine.spark import SparkEngine
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import StoreConfig

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


def test_a_port_that_nobody_listens_at() -> None:
    with pytest.raises(EngineUnavailable) as caught:
        SparkEngine(LAKE, lambda: connect("sc://localhost:1")).probe()
    assert str(caught.value).endswith("or check PRISM_SPARK_REMOTE (Connection refused)")
