"""Sessions on Spark. Over Spark Connect, processes of one version and with the same settings of Spark share a session.

Spark keeps Python workers for each session by itself and lets none go before the server ends: with a session for each
run, a run's first job took 1.5 s instead of 0.1 s, and a server lost 50 MB to each run.
"""

from __future__ import annotations

import hashlib
import json
import socket
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prism_assets.domain.errors import EngineUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = "sc://"
_CONNECT_PORT = 15_002
_RETRIES = 6
_GENERATIONS = 40
"""Of one day: a server closes a session no sooner than after an hour without work."""
_SILENCE_SECONDS = 150
"""A server ends and reopens the stream of every job within 120 s, so longer silence is that of a host that is gone.

Spark 4.1 has no setting for pings, and its server takes one in 300 s: more often they count against the client, and
after three without a byte of its own the server closes the connection. They are sent after silence alone, and only
while a call is open, so a living server gets none.
"""
_PING_SECONDS, _CONNECT_SECONDS, _ANSWER_SECONDS = 20, 5, 10
UNREACHABLE_STATUSES = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
"""Statuses of gRPC for calls that no server has answered."""
_SESSION_ENDED = ("SESSION_CLOSED", "SESSION_CHANGED", "SESSION_NOT_FOUND")


def connect(remote: str) -> SparkSession:
    """The session of this process on `sc://…` through Spark Connect, or on a classic master."""

    def make(address: str) -> Any:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("prism_assets")
        return (builder.remote(address) if address.startswith(_SCHEME) else builder.master(address)).getOrCreate()

    return open_session(remote, make)


def open_session(
    remote: str, make: Callable[[str], SparkSession], settings: Mapping[str, object] | None = None
) -> SparkSession:
    """Calls `make`, which gets or creates a session, with an address that leads to the shared session.

    A server closes a session that nobody used for an hour, and its id is lost for good; then the next id is taken.
    `settings` are those that `make` gives to Spark: they hold for the whole session, so others have another one. An
    address with a session id is taken as it is, and so is that of a classic master. OSError: nobody listens.
    """
    if not remote.startswith(_SCHEME):
        return make(remote)
    _check_listening(remote)
    _notice_silence()
    _collect_quietly()
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
    # The first id is tried twice: what is over may be only what this process knew of a server that was restarted.
    today = datetime.now(timezone.utc).date()
    name = f"prism_assets/{_code()}/{json.dumps(settings, sort_keys=True, default=str)}/{today}"
    for generation in (0, *range(_GENERATIONS)):
        session_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{generation}")
        yield f"{remote.rstrip('/;')}{separator}session_id={session_id}"
    yield remote  # a session of its own, with workers of its own: slower, and it works


@cache
def _code() -> str:
    """Names the code of this package as it is on disk: workers that have imported other code must not be met again."""
    package = Path(__file__).parents[1]
    files = sorted((str(path), path.stat()) for path in package.rglob("*.py"))
    listed = "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in files)
    return hashlib.sha256(listed.encode()).hexdigest()


def _forget() -> None:
    """Drops what this process holds of a session that is over, and leaves the server's alone: others may use it."""
    from pyspark.sql.connect.session import SparkSession

    known: Any = SparkSession
    # Not by getActiveSession: that hides a session whose client has closed itself, which then stays where it is.
    for session in {known._default_session, getattr(known._active_session, "session", None)} - {None}:
        session.release_session_on_close = False
        session.stop()


def _check_listening(remote: str) -> None:
    """The client retries for ten minutes before it says that nobody listens; a person should know at once.

    A port alone says little: that of a proxy listens also when there is no server behind it. An error is an answer.
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
            ask(ConfigRequest(), timeout=_ANSWER_SECONDS)  # of no session: it begins none
        except grpc.RpcError as error:
            if error.code().name in UNREACHABLE_STATUSES:
                raise


def _notice_silence() -> None:
    """Has all clients of this process notice a host that is gone without a word, and not wait for it for ever."""
    from pyspark.sql.connect.client import ChannelBuilder

    wanted = {
        "grpc.keepalive_time_ms": _SILENCE_SECONDS * 1_000,
        "grpc.keepalive_timeout_ms": _PING_SECONDS * 1_000,
        "grpc.http2.ping_timeout_ms": _PING_SECONDS * 1_000,  # its own 60 s would outlast the other
        "grpc.min_reconnect_backoff_ms": _CONNECT_SECONDS * 1_000,  # which is how long a connection may take
    }
    others = [(name, value) for name, value in ChannelBuilder.GRPC_DEFAULT_OPTIONS if name not in wanted]
    ChannelBuilder.GRPC_DEFAULT_OPTIONS = [*others, *wanted.items()]


def _collect_quietly() -> None:
    """Has a session that is collected as garbage not close its client, which leaves the connection to gRPC.

    Its client would shut down the pool of threads that all clients share, wherever Python happens to collect it: where
    that is in the midst of handing work to this very pool, the thread waits for itself, for ever.
    """
    from pyspark.sql.connect.session import SparkSession

    SparkSession.__del__ = _do_nothing  # type: ignore[method-assign]


def _do_nothing(_session: Any) -> None:
    pass


def _impatient(session: Any) -> SparkSession:
    """Gives up on a server that went away after seconds, not minutes: the stages themselves are safe to repeat."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=1_000)])
    session.release_session_on_close = False
    # What it would say of its tries says the error that follows.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    return session  # type: ignore[no-any-return]
