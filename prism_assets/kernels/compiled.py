"""Loads the compiled kernel, the package `prism_kernel`, where a process has one.

The kernel is optional. Without it, Python computes the same results in more time. `PRISM_KERNEL=off` leaves it out.
"""

from __future__ import annotations

import importlib
import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

SWITCH = "PRISM_KERNEL"
"""The environment variable that leaves the kernel out, for tests and comparisons."""
_SEAM = 6
"""The version of the kernel's interface that this code calls."""
_LOG = logging.getLogger(__name__)


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
    if os.environ.get(SWITCH, "").lower() == "off":
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
    """Logs a failure of the kernel, such as a panic, and the work that Python does instead. The result is the same."""
    _LOG.warning("Python %s: %s", work, failure)


def _missing(name: str) -> Kernel:
    return Kernel(why_not=f"the package {name} is not installed")


def _broken(name: str, error: Exception) -> Kernel:
    return Kernel(why_not=f"{name} cannot be loaded: {type(error).__name__}: {error}", is_broken=True)
