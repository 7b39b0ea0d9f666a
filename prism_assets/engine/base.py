"""The interface between stages and the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task

_Result = TypeVar("_Result")


class Engine(Protocol):
    """Runs kernels over many tasks. Results arrive in any order, each as soon as its task is done.

    Raises EngineFailed when the whole job died (for example, a worker was killed), and EngineUnavailable when no engine
    answers.
    """

    @property
    def slots(self) -> int:
        """How many tasks ran at the same time when the last job began, 1 before the first job. Asks nobody."""
        ...

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs tasks of one kernel as one job. `definitions` holds at least the definitions named by the tasks."""
        ...

    def probe(self) -> None:
        """Runs an empty task where kernels run. Raises EngineFailed or EngineUnavailable if that fails."""
        ...
