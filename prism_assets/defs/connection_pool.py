"""One bounded pool of connections to Dagster's database for each process, however many instances it opens.

Dagster opens an instance for every tick of a sensor, and each instance makes three engines that nobody disposes. An
engine of Dagster opens a connection for every call: dozens a second with a hundred tables, each with the password's key
derivation on both sides and a server process with empty caches. A pool for each engine would keep its sessions until
Python's cycle collector finds the engine. This plugin of SQLAlchemy therefore gives all engines of one address the pool
of the first one. dagster.yaml names it in the parameters of the URL.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from sqlalchemy import URL, Engine, NullPool, QueuePool
from sqlalchemy.engine import CreateEnginePlugin

from prism_assets.defs.log_lines import print_lines_once

KEPT = 4
"""Connections that a process keeps between calls: as many as sensors that dagster.yaml has evaluated at a time."""
MOST = 16
"""Connections of a process at any moment. The next call waits, and Dagster repeats it where the wait was too long."""
_WAIT_SECONDS = 30
_LONGEST_SECONDS = 600
"""Age at which a connection is replaced: a server process keeps what it has cached until it ends."""

_Address = tuple[URL, Any]

_lock = threading.Lock()
_first: dict[_Address, Engine] = {}
"""The engine whose pool all engines of an address use. A process has one address, tests have some."""


class KeptConnections(CreateEnginePlugin):
    """Shares one pool among engines that would keep no connection. Engines with a pool of their own stay as they are.

    The web server has pools of its own. A connection that PostgreSQL ended meanwhile is found by a ping and replaced.
    """

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        print_lines_once()
        self._address = (url, kwargs.get("isolation_level"))
        self._shares = kwargs.get("poolclass") is NullPool and not _has_own_login(self._address)
        if self._shares:
            kwargs.update(
                poolclass=QueuePool,
                pool_size=KEPT,
                max_overflow=MOST - KEPT,
                pool_timeout=_WAIT_SECONDS,
                pool_use_lifo=True,
                pool_recycle=_LONGEST_SECONDS,
            )
        if kwargs.get("poolclass") is not NullPool:
            kwargs.setdefault("pool_pre_ping", True)

    def update_url(self, url: URL) -> URL:
        """Returns the URL without a change: the plugin has no parameter of its own."""
        return url

    def engine_created(self, engine: Engine) -> None:
        """Gives the engine the pool of the first one with this address, and its dialect, which knows the server.

        The engine's own pool goes unused: it has opened nothing yet.
        """
        if not self._shares:
            return
        with _lock:
            first = _first.setdefault(self._address, engine)
        engine.pool, engine.dialect = first.pool, first.dialect


def _has_own_login(address: _Address) -> bool:
    """Tells whether Dagster makes a password for each connection, as with `auth_provider` in dagster.yaml.

    Such an engine gets a listener, which would gather in a shared dialect, one for each instance.
    """
    first = _first.get(address)
    return first is not None and bool(first.dialect.dispatch.do_connect)


# A connection must not be used by two processes.
os.register_at_fork(after_in_child=_first.clear)
