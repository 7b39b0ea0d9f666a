"""Runs tasks as one job, and in halves where it dies or leaves some unanswered: a poisonous task ends up alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prism_assets.domain.errors import EngineFailed, EngineUnavailable

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Bisect(Generic[_Task, _Result]):
    """One piece of work for an engine. `task_id` and `result_id` tell which result answers which task.

    `poisoned` makes the result of a task over which the job died, or that it left unanswered, when it was alone. Before
    a task is blamed, `probe` gives the engine something harmless: if it dies of that too, the engine itself is sick,
    which is EngineUnavailable, and no task is blamed.
    """

    run: Callable[[Sequence[_Task]], Iterator[_Result]]
    task_id: Callable[[_Task], Hashable]
    result_id: Callable[[_Result], Hashable]
    poisoned: Callable[[_Task, EngineFailed], _Result]
    probe: Callable[[], None]

    def results(self, tasks: Sequence[_Task]) -> Iterator[_Result]:
        """Yields one result for every task, as each is there."""
        left = {self.task_id(task): task for task in tasks}
        error = EngineFailed("the engine ended without a result for it")
        try:
            for result in self.run(tasks):
                if left.pop(self.result_id(result), None) is not None:
                    yield result
        except EngineFailed as died:
            error = died
        rest = list(left.values())
        if len(tasks) == 1 and rest:
            check_engine(self.probe)
            yield self.poisoned(rest[0], error)
        elif rest:
            half = (len(rest) + 1) // 2
            yield from self.results(rest[:half])
            yield from self.results(rest[half:]) if rest[half:] else ()


def check_engine(probe: Callable[[], None]) -> None:
    """Gives the engine something harmless; EngineUnavailable if it dies of that, too."""
    try:
        probe()
    except EngineFailed as error:
        raise EngineUnavailable(f"the engine fails whatever it is given: {error}") from error
