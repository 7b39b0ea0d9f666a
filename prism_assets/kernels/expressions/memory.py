"""Limits memory that DuckDB's functions allocate outside DuckDB's own limit, if the operating system supports it.

A single hostile line suffices for an expression such as `replace(a, 'x', a)` to request more memory than the machine
has. The worker would be killed with all its other work. Therefore the address space of the process may grow only by
ROOM while DuckDB answers. DuckDB reports a failed allocation as an ordinary error and survives. Meanwhile other threads
have the same limit, and processes started during this time keep it.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM = 1 << 30
"""Bytes by which the process may grow while DuckDB answers for one block."""
_LEAST_ROOM = 1 << 28
"""The room of a process that has already grown by twice ROOM since its first block."""
RETURNS_MEMORY = {"DUCKDB_JE_MALLOC_CONF": "retain:false,dirty_decay_ms:500,muzzy_decay_ms:0"}
"""Makes DuckDB's allocator return address space soon. Must be in the environment before DuckDB is loaded."""
_GIVES_BACK = 3.0
"""Seconds to wait for this at most."""
_STATM = Path("/proc/self/statm")


class _Fence:
    """Admits one block at a time, because two would share the room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = 0
        self._usual = 0
        self._statm: int | None = None

    @contextmanager
    def around(self) -> Iterator[None]:
        """Limits the process during the block. Without a known process size there is no limit."""
        with self._lock:
            before = resource.getrlimit(resource.RLIMIT_AS)
            try:
                self._set_limit(*before)
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)

    def _set_limit(self, soft: int, hard: int) -> None:
        self._usual = taken = self._address_space()
        if not taken:
            return
        self._first = self._first or taken
        limit = min(taken + ROOM, max(self._first + 2 * ROOM, taken + _LEAST_ROOM))
        if soft == resource.RLIM_INFINITY or limit < soft:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    def regain(self) -> None:
        """Waits a few seconds at most until the process has about its size before the block."""
        ends = time.monotonic() + _GIVES_BACK
        while self._address_space() > self._usual + _LEAST_ROOM and time.monotonic() < ends:
            time.sleep(0.05)

    def _address_space(self) -> int:
        """Returns the size in bytes, or 0 if unknown. The file stays open, because opening costs more than reading."""
        try:
            if self._statm is None:
                self._statm = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._statm, 64, 0).split()[0]) * resource.getpagesize()
        except OSError:
            return 0


_fence = _Fence()


def _reset() -> None:
    """Gives a forked child its own lock. The inherited one may be held by a thread that does not exist in the child."""
    global _fence
    _fence = _Fence()


os.register_at_fork(after_in_child=_reset)


@contextmanager
def confined() -> Iterator[None]:
    """Limits the growth of the process to ROOM. Waits for other threads inside. Not reentrant."""
    with _fence.around():
        yield


def regain() -> None:
    """Waits until memory of a query that exhausted its room is returned, so the next query has the room again."""
    _fence.regain()
