"""What stages ask of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from prism_assets.domain.tables import Definitions
from prism_assets.domain.work import Task

_Result = TypeVar("_Result")


class Engine(Protocol):
    """Runs kernels over many tasks. Results come in any order, each as soon as it is there.

    Raises EngineFailed when the job died as a whole (a worker was killed), EngineUnavailable when there is no engine.
    """

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs tasks of one kernel as one job, with at least the definitions that they name."""
        ...

    def probe(self) -> None:
        """Does nothing, where kernels run; EngineFailed or EngineUnavailable if not even that works."""
        ...
