"""Sessions on Spark. Over Spark Connect, all processes of one version of this package share one session.

Spark keeps Python workers for each session by itself and lets none go before the server ends: with a session for each
run, a run's first job took 1.5 s instead of 0.1 s, and a server lost 50 MB to each run.
"""

from __future__ import annotations

import hashlib
import socket
import uuid
from collections.abc import Callable, Iterator
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
_GENERATIONS = 100
_OVER = ("SESSION_CLOSED", "SESSION_CHANGED", "SESSION_NOT_FOUND")


def connect(remote: str) -> SparkSession:
    """The session of this process on `sc://…` through Spark Connect, or on a classic master."""

    def make(address: str) -> Any:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("prism_assets")
        return (builder.remote(address) if address.startswith(_SCHEME) else builder.master(address)).getOrCreate()

    return open_session(remote, make)


def open_session(remote: str, make: Callable[[str], SparkSession]) -> SparkSession:
    """Calls `make`, which gets or creates a session, with an address that leads to the shared session.

    A server closes a session that nobody used for an hour, and its id is lost for good; then the next id is taken. An
    address with a session id is taken as it is, and so is that of a classic master. OSError: nobody listens.
    """
    if not remote.startswith(_SCHEME):
        return make(remote)
    _check_listening(remote)
    for address in _addresses(remote):
        try:
            return _impatient(make(address))
        except Exception as error:
            if not any(word in str(error) for word in _OVER):
                raise
            _forget()
    raise EngineUnavailable("Spark has closed every session of this package: restart the Spark Connect server")


def _addresses(remote: str) -> Iterator[str]:
    if ";session_id=" in remote:
        yield remote
        return
    separator = ";" if "/;" in remote else "/;"
    # The first id is tried twice: what is over may be only what this process knew of a server that was restarted.
    for generation in (0, *range(_GENERATIONS)):
        yield f"{remote.rstrip('/;')}{separator}session_id={_session_id(generation)}"


def _session_id(generation: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"prism_assets/{_code()}/{generation}")


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

    session: Any = SparkSession.getActiveSession()
    if session is not None:
        session.release_session_on_close = False
        session.stop()


def _check_listening(remote: str) -> None:
    """The client retries for ten minutes before it says that nobody listens; a person should know at once."""
    address = urlsplit(remote.split(";", 1)[0])
    socket.create_connection((address.hostname or "localhost", address.port or _CONNECT_PORT), timeout=5).close()


def _impatient(session: Any) -> SparkSession:
    """Gives up on a server that went away after seconds, not minutes: the stages themselves are safe to repeat."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=1_000)])
    session.release_session_on_close = False
    return session  # type: ignore[no-any-return]
