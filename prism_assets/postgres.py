"""Engines for PostgreSQL with stateless sessions, so a pooler may give each transaction another session.

PgBouncer in transaction mode passes a session on to the next client unchanged. One client's prepared statement would
run for another client under the same name, and a setting would apply to other transactions. Therefore statements are
never prepared by name, and each transaction makes its own settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from prism_assets.secret_references import is_reference, password_at

_CONNECT_SECONDS = 5
_LONGEST_SESSION_SECONDS = 600
"""Age at which a session is replaced, because a server process keeps its caches until it ends."""
_TRANSACTION_SETTINGS = {
    "timezone": "UTC",
    "lock_timeout": "30s",
    # Ends a worker that hangs inside a transaction. All others wait for its locks, and no lease ends them.
    "idle_in_transaction_session_timeout": "60s",
}
_PORT = 5432
_REFUSED_PASSWORD = re.compile(r"authentication failed|no such user", re.IGNORECASE)
_REFUSED_OPTIONS = re.compile(r"startup parameter|command.line options", re.IGNORECASE)
"""Words of poolers that refuse clients with session settings."""
_servers_without_options: set[tuple[object, object]] = set()
"""Hosts and ports that refused the settings of `Keepalive.of_server`. Each process is refused once."""


@dataclass(frozen=True)
class Keepalive:
    """TCP keepalive settings for both sides of a connection.

    After `idle` silent seconds, a side probes its peer, and gives it up after `count` probes. By the defaults of
    operating systems, the session of a vanished host lives for hours.
    """

    idle: int = 30
    interval: int = 10
    count: int = 3

    @property
    def longest(self) -> int:
        """Seconds after which a vanished host is given up, also while sent data is unacknowledged."""
        return self.idle + self.interval * self.count

    @property
    def of_server(self) -> dict[str, str]:
        """Server settings against vanished clients. They apply to one socket, so a pooler may refuse them."""
        return {
            "tcp_keepalives_idle": str(self.idle),
            "tcp_keepalives_interval": str(self.interval),
            "tcp_keepalives_count": str(self.count),
            "tcp_user_timeout": f"{self.longest}s",
        }

    @property
    def of_client(self) -> dict[str, int]:
        """Connection parameters against a vanished server."""
        return {
            "keepalives_idle": self.idle,
            "keepalives_interval": self.interval,
            "keepalives_count": self.count,
            "tcp_user_timeout": self.longest * 1000,
        }


def create_engine(
    url: sqlalchemy.URL,
    *,
    kept: int,
    most: int,
    keepalive: Keepalive | None = None,
    settings: Mapping[str, str] | None = None,
) -> Engine:
    """Returns an engine that keeps `kept` sessions and opens at most `most`. Each transaction gets `settings`.

    A transaction whose session the server has ended meanwhile begins in a new one. Statements outside transactions
    have no such second try.
    """
    alive = keepalive or Keepalive()
    engine = sqlalchemy.create_engine(
        url,
        pool_size=kept,
        max_overflow=most - kept,
        pool_timeout=30,
        pool_use_lifo=True,
        pool_recycle=_LONGEST_SESSION_SECONDS,
        use_native_hstore=False,
        connect_args={
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "prism_assets",
            "prepare_threshold": None,
            **alive.of_client,
        },
    )
    begin = _begin({**_TRANSACTION_SETTINGS, **(settings or {})})

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Dialect, _record: Any, _words: Any, parameters: dict[str, Any]) -> Any:
        return _open(dialect, parameters, alive.of_server)

    @event.listens_for(engine, "begin")
    def _begin_transaction(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            return
        try:
            _send(connection, begin)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            _send(connection, begin)  # in a new session: the pool gives away none that is older than the error

    return engine


def _send(connection: Connection, begin: str) -> None:
    """Begins a transaction. A failure is harmless, because no statement of the transaction has run."""
    driver: Any = connection.connection.driver_connection
    if not driver.autocommit:  # setting it takes locks of the driver
        driver.autocommit = True  # the driver would send its own BEGIN
    connection.exec_driver_sql(begin)


def _begin(settings: Mapping[str, str]) -> str:
    """Returns the start of a transaction with its settings, in one message, as the driver's own BEGIN needs.

    A server's default may be REPEATABLE READ. Reads under a lock could then be older than the lock.
    """
    made = (f"SET LOCAL {name} = '{value}'" for name, value in settings.items())
    return "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *made])


def _open(dialect: Dialect, parameters: Mapping[str, Any], settings: Mapping[str, str]) -> Any:
    """Opens a session with `settings`, or without them if a pooler refuses session settings."""
    place = (parameters.get("host"), parameters.get("port"))
    if place not in _servers_without_options:
        given = [parameters["options"]] if parameters.get("options") else []
        options = " ".join([*given, *(f"-c {name}={value}" for name, value in settings.items())])
        try:
            return connect(dialect, {**parameters, "options": options})
        except dialect.loaded_dbapi.Error as error:
            if not _REFUSED_OPTIONS.search(str(error)):
                raise
    session = connect(dialect, parameters)
    _servers_without_options.add(place)
    return session


def follow_password(engine: Engine) -> None:
    """Lets an engine look up a password that is a reference, at each new session."""
    event.listen(engine, "do_connect", follow)


def follow(dialect: Dialect, _record: Any, _words: Any, parameters: dict[str, Any]) -> Any:
    """Opens a session of an engine of `follow_password`: the listener for its event `do_connect`."""
    return connect(dialect, parameters)


def connect(dialect: Dialect, parameters: Mapping[str, Any]) -> Any:
    """Opens a session. A password that is a reference is looked up first, and once more if the server refuses it.

    A manager of secrets changes passwords while processes run, and its former answer is kept for some minutes.
    """
    given = str(parameters.get("password") or "")
    if not is_reference(given):
        return dialect.connect(**parameters)
    find = partial(
        password_at,
        given,
        host=str(parameters.get("host") or ""),
        port=int(parameters.get("port") or _PORT),
        user=str(parameters.get("user") or ""),
    )
    password = find()
    try:
        return dialect.connect(**{**parameters, "password": password})
    except dialect.loaded_dbapi.Error as error:
        if not _REFUSED_PASSWORD.search(str(error)):
            raise
        current = find(again=True)
        if current == password:
            raise
    return dialect.connect(**{**parameters, "password": current})


def url_with_password(url: str) -> str:
    """Returns the URL for a client that makes its own sessions, with the current password in place of a reference."""
    parsed = sqlalchemy.make_url(url)
    given = parsed.password or ""
    if not is_reference(given):
        return url
    password = password_at(given, host=parsed.host or "", port=parsed.port or _PORT, user=parsed.username or "")
    return parsed.set(password=password).render_as_string(hide_password=False)
