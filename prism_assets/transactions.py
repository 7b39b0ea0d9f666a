"""Keeps the network out of transactions: a call that hangs inside one would hold locks that all others wait for.

PostgreSQL ends a transaction that stands still; if the call is slow every time, its work is then never committed. So
S3, Glue, the queues and Spark are asked before a transaction, under a fence that the transaction checks again.
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
    """Marks the block as one in which this thread holds a transaction."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1


def refuse_inside_transaction(what: str) -> None:
    """Called before each use of the network; InvariantBroken inside a transaction: the caller's code is wrong."""
    if _state.depth:
        raise InvariantBroken(f"{what} must not be asked inside a transaction; report it")
