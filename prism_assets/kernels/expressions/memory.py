"""What functions of DuckDB take for themselves counts for no limit of DuckDB's: the system refuses it, where it can.

One hostile line is enough for an expression such as `replace(a, 'x', a)` to ask for more than the machine has; the
worker would be killed, and with it whatever else it does. While DuckDB answers, the address space of the process may
grow by so much and no more: DuckDB tells of what it did not get as of any error, and lives on. Threads beside it have
the same limit meanwhile, and processes that begin then keep it.
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
"""Of a process that has grown by twice ROOM since its first block."""
RETURNS_MEMORY = {"DUCKDB_JE_MALLOC_CONF": "retain:false,dirty_decay_ms:500,muzzy_decay_ms:0"}
"""Has DuckDB's allocator give address space back soon; to be in the environment when DuckDB is loaded."""
_GIVES_BACK = 3.0
"""Seconds that this is waited for at most."""
_STATM = Path("/proc/self/statm")


class _Fence:
    """One block at a time: with two, each would have the other's room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = 0
        self._usual = 0
        self._statm: int | None = None

    @contextmanager
    def around(self) -> Iterator[None]:
        """Where the system does not tell the size of the process there is no limit."""
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
        """Waits till the process is about as big as before the block, for some seconds at most."""
        ends = time.monotonic() + _GIVES_BACK
        while self._address_space() > self._usual + _LEAST_ROOM and time.monotonic() < ends:
            time.sleep(0.05)

    def _address_space(self) -> int:
        """Its bytes; 0 where the system does not tell. The file stays open: to open it costs more than to read it."""
        try:
            if self._statm is None:
                self._statm = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._statm, 64, 0).split()[0]) * resource.getpagesize()
        except OSError:
            return 0


_fence = _Fence()


def _begin_anew() -> None:
    """A child has the lock as it was, perhaps of a thread that it has not."""
    global _fence
    _fence = _Fence()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def confined() -> Iterator[None]:
    """Keeps the process from growing by more than ROOM; waits for a thread that does so. Not to be nested."""
    with _fence.around():
        yield


def regain() -> None:
    """Waits till what a query took that filled its room is given back: the next one has the room again."""
    _fence.regain()
