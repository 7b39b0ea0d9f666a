"""Waits for processes of Spark."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_SECONDS = 300
"""For a busy machine: a quiet one takes seconds."""
_LOOKS_EVERY = 0.05


def until(happens: Callable[[], bool], waited_for: str) -> None:
    """Waits for something; fails the test where it does not happen."""
    end = time.monotonic() + LIMIT_SECONDS
    while not happens():
        assert time.monotonic() < end, f"{waited_for} was awaited in vain"
        time.sleep(_LOOKS_EVERY)
