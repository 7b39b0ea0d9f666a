"""Loads the compiled kernel, the package `prism_kernel`, where a process has one.

The kernel is optional. Without it, Python computes the same results in more time. `PRISM_KERNEL=off` leaves it out,
and `required` ends processes without it.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.kernels.requirement import OFF, SWITCH

_SEAM = 11
"""The version of the kernel that this code needs. A change of interface or results raises it on both sides."""
_LOG_SECONDS = 60
"""A process logs one failure of the kernel in this time."""
_LOG = logging.getLogger(__name__)


class KernelFailed(Exception):
    """The kernel panicked, or refused a block. Nothing of the block was read."""


@dataclass(frozen=True)
class Kernel:
    """The compiled kernel, or the reason why this process has none."""

    module: Any = None
    why_not: str = ""
    is_broken: bool = False
    """The kernel is installed, and cannot be loaded."""


@cache
def loaded_kernel() -> Kernel:
    """Loads the kernel at the first call. A kernel that is broken gets one warning in each process."""
    if os.environ.get(SWITCH, "").lower() == OFF:
        return Kernel(why_not=f"{SWITCH} is off")
    found = load("prism_kernel")
    if found.is_broken:
        _LOG.warning("Reading takes longer, with the same results: %s", found.why_not)
    return found


def load(name: str) -> Kernel:
    """Imports the kernel under a name. Any failure of the import is an answer."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        return _missing(name) if error.name == name else _broken(name, error)
    except Exception as error:  # a wheel of another platform fails in many ways
        return _broken(name, error)
    if getattr(module, "__file__", None) is None:  # the folder of the crate, which Python takes for a namespace
        return _missing(name)
    seam = getattr(module, "SEAM", None)
    if seam != _SEAM:
        why_not = f"{name} has interface {seam} instead of {_SEAM}: install the wheel of this version"
        return Kernel(why_not=why_not, is_broken=True)
    return Kernel(module=module)


def log_failure(work: str, failure: Exception | str) -> None:
    """Logs a failure of the kernel, such as a panic, and the work that Python does instead. The result is the same.

    A process logs one failure a minute and counts the others, because a faulty kernel may fail at each block.
    """
    _failures.log(work, failure)


@contextmanager
def kernel_panics() -> Iterator[None]:
    """Raises KernelFailed for a panic of the kernel."""
    try:
        yield
    except RuntimeError as error:
        raise KernelFailed(str(error)) from error


def integers(array: Any) -> npt.NDArray[np.int64]:
    """Returns an array of the kernel as 64-bit integers."""
    return np.asarray(pa.array(array).to_numpy(), np.int64)


class FailureLog:
    """Logs failures of the kernel, one in `_LOG_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = -math.inf
        self._unlogged = 0

    def log(self, work: str, failure: Exception | str) -> None:
        """Logs a failure, or counts it for the next message."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                self._unlogged += 1
                return
            unlogged, self._unlogged, self._next = self._unlogged, 0, now + _LOG_SECONDS
        others = f" ({unlogged} earlier failures were not logged)" if unlogged else ""
        _LOG.warning("Python %s: %s%s", work, failure, others)


_failures = FailureLog()


def _missing(name: str) -> Kernel:
    return Kernel(why_not=f"the package {name} is not installed")


def _broken(name: str, error: Exception) -> Kernel:
    return Kernel(why_not=f"{name} cannot be loaded: {type(error).__name__}: {error}", is_broken=True)
