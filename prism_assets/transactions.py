"""Keeps network calls out of transactions. A call that hangs inside one holds locks that all others wait for.

PostgreSQL ends an idle transaction. If the call is slow every time, the work is never committed. Therefore S3, Glue,
queues and Spark are called before a transaction, under a fence checked again inside it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prism_assets.domain.errors import InvariantBroken


class _ThreadState(threading.local):
    depth = 0


_state = _ThreadState()


@contextmanager
def inside_transaction() -> Iterator[None]:
    """Marks the block as part of a transaction of this thread."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1


def refuse_inside_transaction(what: str) -> None:
    """Raises InvariantBroken inside a transaction, a bug of the caller. Called before each network call."""
    if _state.depth:
        raise InvariantBroken(f"{what} must not be asked inside a transaction; report it")
