"""What functions of DuckDB take for themselves counts for no limit of DuckDB's: the system refuses it, where it can.

One hostile line is enough for an expression such as `replace(a, 'x', a)` to ask for more than the machine has; the
worker would be killed, and with it whatever else it does. While DuckDB answers, the address space of the process may
grow by so much and no more: DuckDB tells of what it did not get as of any error, and lives on. Threads beside it have
the same limit meanwhile, and processes that begin then keep it; what they need beyond it ends their job, as a death
would.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

ROOM = 1 << 30
"""Bytes by which a process may grow, over what it had when DuckDB answered first."""
_LEAST_ROOM = 1 << 28
"""Of one that has grown since for other reasons."""
_STATM = Path("/proc/self/statm")
RETURNS_MEMORY = {"DUCKDB_JE_MALLOC_CONF": "retain:false"}
"""Has DuckDB's allocator give address space back; to be in the environment when DuckDB is loaded."""


@contextmanager
def confined() -> Iterator[None]:
    """Keeps the process from growing by more than ROOM; where the system does not tell its size, does nothing."""
    fence = _fence(os.getpid())
    fence.enter()
    try:
        yield
    finally:
        fence.leave()


@lru_cache(maxsize=1)
def _fence(_process: int) -> _Fence:
    """The one of this process."""
    return _Fence()


class _Fence:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: int | None = None
        self._inside = 0
        self._before = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def enter(self) -> None:
        """Sets the limit, anew for each that enters beside others."""
        with self._lock:
            if self._inside == 0:
                self._before = resource.getrlimit(resource.RLIMIT_AS)
            self._inside += 1
            taken = _address_space()
            if taken is None:
                return
            self._first = self._first or taken
            soft, hard = self._before
            limit = max(self._first + ROOM, taken + _LEAST_ROOM)
            if soft == resource.RLIM_INFINITY or limit < soft:
                resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    def leave(self) -> None:
        """Puts back what was before, with the last that leaves."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                resource.setrlimit(resource.RLIMIT_AS, self._before)


def _address_space() -> int | None:
    try:
        return int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return None
