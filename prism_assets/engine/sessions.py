"""Spark sessions. Over Spark Connect, processes with the same code and Spark settings share one session.

Spark keeps separate Python workers for each session and releases none before the server ends. With one session a run,
the first job of a run took 1.5 s instead of 0.1 s, and the server lost 50 MB a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prism_assets.domain.errors import EngineUnavailable, WrongUse
from prism_assets.engine.allocator import ONE_HEAP_OF_EXECUTORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = "sc://"
SUBMITTED = "submitted"
"""The value of PRISM_SPARK_REMOTE in a driver started by spark-submit, as on EMR Serverless."""
_OF_CLASSIC_MASTERS = {
    "spark.python.daemon.module": "prism_assets.engine.daemon",
    **ONE_HEAP_OF_EXECUTORS,
}
_CONNECT_PORT = 15_002
_RETRIES = 6
_GENERATIONS = 40
"""Session ids tried for one day. A server closes a session after an hour without work at the earliest."""
_SILENCE_SECONDS = 150
"""A server ends and reopens the stream of every job within 120 s, so longer silence means a lost host.

Spark 4.1 has no setting for pings. Its server accepts one ping in 300 s: more frequent ones count against the client,
and after three of them without a byte from the server the server closes the connection. Pings are sent only after
silence and while a call is open, so a living server receives none.
"""
_PING_SECONDS, _CONNECT_SECONDS, _ANSWER_SECONDS = 20, 5, 10
UNREACHABLE_STATUSES = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
"""gRPC statuses of calls without an answer from a server."""
_SESSION_ENDED = ("SESSION_CLOSED", "SESSION_CHANGED", "SESSION_NOT_FOUND")


def connect(remote: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Returns this process's session on `sc://…` through Spark Connect, or on a classic master, with Spark settings."""

    def make(address: str) -> Any:
        from pyspark.sql import SparkSession

        ours = {} if address.startswith(_SCHEME) else _OF_CLASSIC_MASTERS
        builder = SparkSession.builder.appName("prism_assets")
        for name, value in {**ours, **(settings or {}), **master_setting(address)}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    return open_session(remote, make, settings)


def master_setting(address: str) -> dict[str, str]:
    """Returns Spark's setting for an address: spark.remote, spark.master, or none where spark-submit sets it.

    Raises WrongUse if spark-submit did not start this process.
    """
    if address == SUBMITTED:
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            raise WrongUse(
                "PRISM_SPARK_REMOTE=submitted is for drivers of spark-submit, which did not start this process"
            )
        return {}
    return {"spark.remote" if address.startswith(_SCHEME) else "spark.master": address}


def open_session(
    remote: str, make: Callable[[str], SparkSession], settings: Mapping[str, object] | None = None
) -> SparkSession:
    """Calls `make`, which gets or creates a session, with the address of the shared session.

    A server closes a session after an hour without use, and its id never works again; then the next id is taken.
    `settings` are the Spark settings applied by `make`. They hold for the whole session, so other settings lead to
    another session. An address with a session id, or of a classic master, is passed on unchanged. Raises OSError if no
    server listens.
    """
    if not remote.startswith(_SCHEME):
        return make(remote)
    _check_listening(remote)
    _notice_silence()
    _collect_quietly()
    _exit_at_once()
    for address in _addresses(remote, settings or {}):
        try:
            return _impatient(make(address))
        except Exception as error:
            if not any(word in str(error) for word in _SESSION_ENDED):
                raise
            _forget()
    raise EngineUnavailable("Spark closes every session at once: look at the log of the Spark Connect server")


def _addresses(remote: str, settings: Mapping[str, object]) -> Iterator[str]:
    if ";session_id=" in remote:
        yield remote
        return
    separator = ";" if "/;" in remote else "/;"
    # The first id is tried twice: the closed session may be only this process's memory of a restarted server.
    today = datetime.now(timezone.utc).date()
    name = f"prism_assets/{_code()}/{json.dumps(settings, sort_keys=True, default=str)}/{today}"
    for generation in (0, *range(_GENERATIONS)):
        session_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{generation}")
        yield f"{remote.rstrip('/;')}{separator}session_id={session_id}"
    yield remote  # a private session with its own workers is slower, but works


@cache
def _code() -> str:
    """Returns a hash of this package's files on disk. Workers that imported other code must not be reused."""
    package = Path(__file__).parents[1]
    files = sorted((str(path), path.stat()) for path in package.rglob("*.py"))
    listed = "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in files)
    return hashlib.sha256(listed.encode()).hexdigest()


def _forget() -> None:
    """Drops this process's hold on a closed session. Leaves the session on the server alone, because other processes
    may use it.
    """
    from pyspark.sql.connect.session import SparkSession

    session_class: Any = SparkSession
    # getActiveSession hides a session whose client has closed itself, and the session would stay in place.
    for session in {session_class._default_session, getattr(session_class._active_session, "session", None)} - {None}:
        session.release_session_on_close = False
        session.stop()


def _check_listening(remote: str) -> None:
    """Raises OSError or grpc.RpcError at once if no server answers. Spark's client would retry for ten minutes first.

    An open port is not enough, because a proxy listens without a server behind it. Any answer counts, also an error.
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.proto import ConfigRequest

    address = urlsplit(remote.split(";", 1)[0])
    place = (address.hostname or "localhost", address.port or _CONNECT_PORT)
    socket.create_connection(place, timeout=_CONNECT_SECONDS).close()
    with DefaultChannelBuilder(remote).toChannel() as channel:
        ask = channel.unary_unary(
            "/spark.connect.SparkConnectService/Config", request_serializer=ConfigRequest.SerializeToString
        )
        try:
            ask(ConfigRequest(), timeout=_ANSWER_SECONDS)  # without a session id, so the call opens no session
        except grpc.RpcError as error:
            if error.code().name in UNREACHABLE_STATUSES:
                raise


def _notice_silence() -> None:
    """Configures all clients of this process to notice a silent host, instead of waiting for it for ever."""
    from pyspark.sql.connect.client import ChannelBuilder

    keepalive = {
        "grpc.keepalive_time_ms": _SILENCE_SECONDS * 1_000,
        "grpc.keepalive_timeout_ms": _PING_SECONDS * 1_000,
        "grpc.http2.ping_timeout_ms": _PING_SECONDS * 1_000,  # the default of 60 s would outlast the line above
        "grpc.min_reconnect_backoff_ms": _CONNECT_SECONDS * 1_000,  # also limits how long a connection attempt may take
    }
    defaults = [(name, value) for name, value in ChannelBuilder.GRPC_DEFAULT_OPTIONS if name not in keepalive]
    ChannelBuilder.GRPC_DEFAULT_OPTIONS = [*defaults, *keepalive.items()]


def _collect_quietly() -> None:
    """Stops a garbage-collected session from closing its client. gRPC closes the connection itself.

    The client would shut down the thread pool shared by all clients, wherever Python happens to collect the session. If
    the collecting thread is just submitting work to this pool, it deadlocks.
    """
    from pyspark.sql.connect.session import SparkSession

    SparkSession.__del__ = _do_nothing  # type: ignore[method-assign]


def _exit_at_once() -> None:
    """Stops clients from clearing caches of models at the exit of the process. Nothing here makes such a cache.

    A client whose server has ended would retry, and hold the exit back for ten minutes with the policy of a new one.
    """
    from pyspark.sql.connect.client import SparkConnectClient

    SparkConnectClient._cleanup_ml_cache = _do_nothing  # type: ignore[method-assign, assignment]


def _do_nothing(_owner: Any) -> None:
    pass


def _impatient(session: Any) -> SparkSession:
    """Limits the retries, so that a lost server is given up after seconds instead of minutes. Stages are safe to
    repeat.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=1_000)])
    session.release_session_on_close = False
    # The error that follows says the same.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    return session  # type: ignore[no-any-return]
