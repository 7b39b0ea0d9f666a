"""Memory that a process has freed, and needs again a moment later."""

from __future__ import annotations

import ctypes
from functools import cache

_KEPT_BYTES = 256 << 20
"""The most freed memory that a process keeps at the end of its heap."""
_STEP_BYTES = 16 << 20
_LARGEST_BYTES = 128 << 20
"""Larger blocks go back to the system at once."""
_OPTIONS = {-1: _KEPT_BYTES, -2: _STEP_BYTES, -3: _LARGEST_BYTES}
"""By the numbers that glibc's malloc.h gives M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD."""


@cache
def keep_memory() -> None:
    """Keeps freed memory in the process, that of Arrow, too, once a process.

    The reader of a topic fills and frees 64 MiB a few times a second. If that memory goes back to the system, each of
    its pages is cleared and mapped again, which took up to a third of the reader's time. Only glibc has these options.
    """
    import pyarrow as pa

    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        for option, size in _OPTIONS.items():
            libc.mallopt(option, size)
        pa.set_memory_pool(pa.system_memory_pool())
