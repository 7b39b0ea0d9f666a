"""Engines and clients that a process keeps, so that the contexts of its sensor ticks share them.

Each is made once for its address. Threads share them. Each tick makes a context. With sessions and connections of its
own, every context would open new ones every few seconds, and Python's cycle collector would close them at some time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Kept(Generic[_Key, _Value]):
    """Values by key, usually one. `close` ends a value."""

    def __init__(self, close: Callable[[_Value], object] = lambda _value: None) -> None:
        self._close = close
        self._lock = threading.Lock()
        self._values: dict[_Key, _Value] = {}

    def get(
        self, key: _Key, make: Callable[[], _Value], keeps: Callable[[_Value], bool] = lambda _value: True
    ) -> _Value:
        """Returns the value of a key. Makes a missing one, and keeps the new value if `keeps` returns true.

        One thread at a time runs `make` and `keeps`.
        """
        with self._lock:
            if key in self._values:
                return self._values[key]
            value = make()
            if keeps(value):
                self._values[key] = value
            return value

    def close(self) -> None:
        """Closes and forgets all values. The next caller makes new ones."""
        with self._lock:
            while self._values:
                self._close(self._values.popitem()[1])
