"""One bounded pool of connections to Dagster's database per process, for any number of Dagster instances.

Dagster opens an instance for every sensor tick, and each instance creates three engines that nobody disposes. Such an
engine opens a connection for every call: dozens a second with a hundred tables, each with password key derivation on
both sides and a server process with empty caches. A pool per engine would keep its sessions until Python's cycle
collector finds the engine. Therefore this SQLAlchemy plugin gives all engines of one address the pool of the first one.
dagster.yaml names the plugin in the parameters of the URL.

A password that is a reference is looked up for each new connection, as `secret_references.py` describes.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from sqlalchemy import URL, Engine, NullPool, QueuePool
from sqlalchemy.engine import CreateEnginePlugin

from prism_assets.defs.log_lines import print_lines_once
from prism_assets.postgres import follow, follow_password
from prism_assets.secret_references import is_reference

KEPT = 4
"""Connections a process keeps between calls: one for each sensor evaluated at a time, as set in dagster.yaml."""
MOST = 16
"""Most connections of a process. Further calls wait, and Dagster retries calls that waited too long."""
_WAIT_SECONDS = 30
_LONGEST_SECONDS = 600
"""Age at which a connection is replaced, because a server process keeps its caches until it ends."""

_Address = tuple[URL, Any]

_lock = threading.Lock()
_first: dict[_Address, Engine] = {}
"""The first engine of each address; all others use its pool. A process has one address, tests have several."""


class KeptConnections(CreateEnginePlugin):
    """Shares one pool among engines without a pool. Engines with a pool of their own keep it, as in the web server.

    A ping finds connections ended by PostgreSQL, and the pool replaces them.
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
        """Returns the URL unchanged: the plugin has no parameters."""
        return url

    def engine_created(self, engine: Engine) -> None:
        """Gives the engine the pool and the initialized dialect of the first engine with this address.

        The engine's own pool stays unused and has opened no connection. A password that is a reference has been given
        to the dialect of the first engine.
        """
        if is_reference(engine.url.password or ""):
            follow_password(engine)
        if not self._shares:
            return
        with _lock:
            first = _first.setdefault(self._address, engine)
        engine.pool, engine.dialect = first.pool, first.dialect


def _has_own_login(address: _Address) -> bool:
    """Whether Dagster makes a password per connection, as with `auth_provider` in dagster.yaml.

    Dagster adds a listener to such an engine. In a shared dialect, one listener per instance would accumulate.
    """
    first = _first.get(address)
    return first is not None and any(listener is not follow for listener in first.dialect.dispatch.do_connect)


# Two processes must not share a connection.
os.register_at_fork(after_in_child=_first.clear)
