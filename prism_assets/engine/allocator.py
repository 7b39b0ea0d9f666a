"""The allocator of processes that free much memory, and need it again a moment later."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h
_KEPT_BYTES = 1 << 30
ONE_HEAP: Mapping[str, str] = {"MALLOC_ARENA_MAX": "1"}
"""The environment of new processes that keep memory, because imports start threads before `keep_memory`.

Heaps of threads hold at most 64 MiB. Larger pieces come from the system then, and go back to it: this took a quarter of
a merge.
"""
ONE_HEAP_OF_EXECUTORS = {f"spark.executorEnv.{name}": value for name, value in ONE_HEAP.items()}
"""The same as settings of Spark."""


@cache
def keep_memory() -> None:
    """Makes this process keep freed memory, at most 1 GiB at the end of its heap. Later calls do nothing.

    Page faults took a tenth of a conversion, and a third of reading a topic. They took up to half of a merge on virtual
    machines whose host takes freed memory back. Arrow's system pool, numpy and all later threads share one heap: heaps
    of threads that end go back to the system, and take half as much memory again. `ONE_HEAP` holds for earlier threads,
    too. Nothing changes without glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    import pyarrow as pa  # those who start processes need ONE_HEAP alone

    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        pa.set_memory_pool(pa.system_memory_pool())
