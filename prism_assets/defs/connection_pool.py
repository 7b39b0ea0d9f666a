"""Connections to PostgreSQL that Dagster's processes keep instead of making one for each call.

Dagster's storage opens a connection for every call and closes it behind it: with a hundred tables that are dozens a
second, each with the password's key derivation on both sides and a process of PostgreSQL that begins with empty caches.
dagster.yaml asks for this plugin of SQLAlchemy by its name, in the parameters of the URL.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, NullPool, QueuePool
from sqlalchemy.engine import CreateEnginePlugin

_KEPT = 2
"""Connections that an engine keeps. Dagster has three engines a process, whose calls seldom overlap."""
_LONGEST_SECONDS = 600
"""Then a connection is made anew: a process of PostgreSQL keeps what it has cached until it ends."""


class KeptConnections(CreateEnginePlugin):
    """Gives an engine that keeps nothing a pool; others, as the web server's, stay as they are.

    More calls at once than it keeps connections for get one of their own, as before. A connection that was ended
    meanwhile, by a restart of PostgreSQL for one, is found by a ping before it is used, and made anew.
    """

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        if kwargs.get("poolclass") is NullPool:
            kwargs.update(
                poolclass=QueuePool,
                pool_size=_KEPT,
                max_overflow=-1,
                pool_use_lifo=True,
                pool_recycle=_LONGEST_SECONDS,
            )
        kwargs.setdefault("pool_pre_ping", True)

    def update_url(self, url: URL) -> URL:
        """As it is: no parameter is this plugin's own."""
        return url
