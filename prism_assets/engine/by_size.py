"""Chooses an engine by the size of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task
from prism_assets.engine.base import Engine
from prism_assets.engine.child import SMALL_BYTES, ChildEngine

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class EngineBySize:
    """Small tasks run in a child process; larger ones run on Spark, or alone in the child if there is no Spark."""

    child: ChildEngine
    large: Engine | None

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs the small tasks first, because they end within a second."""
        if self.large is None:
            yield from self.child.run(tasks, definitions)
            return
        small = [task for task in tasks if task.input_bytes <= SMALL_BYTES]
        large = [task for task in tasks if task.input_bytes > SMALL_BYTES]
        if small:
            yield from self.child.run(small, definitions)
        if large:
            yield from self.large.run(large, definitions)

    @property
    def slots(self) -> int:
        """The slots of Spark, or 1 for the child."""
        return self.large.slots if self.large else self.child.slots

    def probe(self) -> None:
        """Probes the child. A silent Spark says so itself when a large task needs it."""
        self.child.probe()

    @property
    def for_suspects(self) -> Engine:
        """The engine for objects of batches that died: Spark, or the child."""
        return self.large or self.child
