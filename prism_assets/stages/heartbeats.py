"""Keeps a lease alive during work. A single heartbeat at the start would let every long job run twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from sqlalchemy import Connection

from prism_assets.domain.errors import PrismError
from prism_assets.metadata.database import Database

_LOG = logging.getLogger(__name__)


class Heartbeat:
    """Calls `beat` from a thread at every third of the lease, until the block ends.

    `beat` runs one statement, outside transactions. In a transaction, a process that freezes after the statement would
    keep its locks for a minute, and the worker that takes over would wait for them. A failed beat is repeated at the
    next turn, whatever the error: the commit decides whether the lease still holds.
    """

    def __init__(self, database: Database, lease_seconds: float, beat: Callable[[Connection], object]) -> None:
        self._database = database
        self._every = lease_seconds / 3
        self._beat = beat
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prism-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                with self._database.outside_transactions() as connection:
                    self._beat(connection)
            except PrismError:
                continue
            except Exception:  # a dead thread would lose the lease without a visible reason
                _LOG.exception("a heartbeat failed, and is tried again")
