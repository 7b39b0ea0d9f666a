"""The client of Glue with every call noted, and some of them changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Recorder:
    """Passes calls on to Glue; `instead` puts something in their place."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.instead: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append(name)
            return self.instead.get(name, getattr(self._inner, name))(**arguments)

        return call

    def lose_answer(self, name: str, error: Exception) -> None:
        """Carries out the next call and loses its answer."""

        def call(**arguments: Any) -> Any:
            getattr(self._inner, name)(**arguments)
            raise error

        self.instead[name] = call
