"""Engines for PostgreSQL whose sessions hold no state, so that a pooler may give each transaction another session.

PgBouncer in transaction mode hands a session to the next client as it is. A prepared statement of one client would run
for another under the same name, and a setting would hold for transactions that did not ask for it. Statements are
therefore never prepared by name, and each transaction makes its own settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import Dialect

_CONNECT_SECONDS = 5
_LONGEST_SESSION_SECONDS = 600
"""Age at which a session is replaced: a server process keeps what it has cached until it ends."""
_TRANSACTION_SETTINGS = {
    "timezone": "UTC",
    "lock_timeout": "30s",
    # A worker that stands still inside a transaction holds locks that all others wait for, and no lease ends them.
    "idle_in_transaction_session_timeout": "60s",
}
_REFUSED_OPTIONS = re.compile(r"startup parameter|command.line options", re.IGNORECASE)
"""In the sentences of poolers that let no client in with settings for its session."""
_servers_without_options: set[tuple[object, object]] = set()
"""Hosts and ports where the settings of `Keepalive.of_server` were refused. Each process is refused once."""


@dataclass(frozen=True)
class Keepalive:
    """After how many silent seconds one side of a connection asks whether the other is still there, and gives it up.

    For both sides: by the defaults of an operating system a session whose host vanished lives for hours.
    """

    idle: int = 30
    interval: int = 10
    count: int = 3

    @property
    def longest(self) -> int:
        """Seconds after which a vanished host is given up, also where what was sent to it is still unanswered."""
        return self.idle + self.interval * self.count

    @property
    def of_server(self) -> dict[str, str]:
        """Settings of the server for a client that vanishes. They concern one socket, so a pooler may refuse them."""
        return {
            "tcp_keepalives_idle": str(self.idle),
            "tcp_keepalives_interval": str(self.interval),
            "tcp_keepalives_count": str(self.count),
            "tcp_user_timeout": f"{self.longest}s",
        }

    @property
    def of_client(self) -> dict[str, int]:
        """Parameters of a connection, for a server that vanishes."""
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
    """An engine that keeps some sessions and has `most` at once; `settings` are more settings of each transaction."""
    alive = keepalive or Keepalive()
    engine = sqlalchemy.create_engine(
        url,
        pool_size=kept,
        max_overflow=most - kept,
        pool_timeout=30,
        pool_use_lifo=True,
        pool_recycle=_LONGEST_SESSION_SECONDS,
        pool_pre_ping=True,
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
        driver: Any = connection.connection.driver_connection
        driver.autocommit = True  # the driver would send a BEGIN of its own
        connection.exec_driver_sql(begin)

    return engine


def _begin(settings: Mapping[str, str]) -> str:
    """The start of a transaction with its settings, in one message: the driver's own BEGIN takes one, too.

    Under REPEATABLE READ, which a server may have as its default, what is read under a lock may be older than the lock.
    """
    made = (f"SET LOCAL {name} = '{value}'" for name, value in settings.items())
    return "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *made])


def _open(dialect: Dialect, parameters: Mapping[str, Any], settings: Mapping[str, str]) -> Any:
    """Opens a session with `settings`, or without them where a pooler refuses settings of sessions."""
    place = (parameters.get("host"), parameters.get("port"))
    if place not in _servers_without_options:
        given = [parameters["options"]] if parameters.get("options") else []
        options = " ".join([*given, *(f"-c {name}={value}" for name, value in settings.items())])
        try:
            return dialect.connect(**{**parameters, "options": options})
        except dialect.loaded_dbapi.Error as error:
            if not _REFUSED_OPTIONS.search(str(error)):
                raise
    session = dialect.connect(**parameters)
    _servers_without_options.add(place)
    return session
