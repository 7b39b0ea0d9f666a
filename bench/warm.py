"""Work in warm processes of one thread's worth each, with their own core-seconds and memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

_Own = TypeVar("_Own", bound="WarmProcess")
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Read by libraries when they are imported."""


@dataclass(frozen=True)
class Usage:
    """Seconds, core-seconds of all threads, and the peak of the process so far in bytes."""

    seconds: float
    core_seconds: float
    peak_bytes: int


class WarmProcess:
    """A process that stays for all rounds of one system. Each begins fresh, without another's memory."""

    def __init__(self, prepare: Callable[[], None] | None = None) -> None:
        os.environ.update(ONE_THREAD)
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), prepare)

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def run(self, work: Callable[[], None]) -> Usage:
        """Runs the work, which can be pickled, and returns its usage."""
        return self._pool.submit(_measured, work).result()


def _measured(work: Callable[[], None]) -> Usage:
    started, before = time.perf_counter(), time.process_time()
    work()
    used = time.process_time() - before
    return Usage(time.perf_counter() - started, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
