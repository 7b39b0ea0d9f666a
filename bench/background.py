"""A thread that works beside a measurement."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

_Own = TypeVar("_Own", bound="BackgroundThread")


class BackgroundThread(ABC):
    """Runs `_run` in a thread between the beginning and the end of a context. `_run` returns when `_ended` is set."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self: _Own) -> _Own:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None: ...
