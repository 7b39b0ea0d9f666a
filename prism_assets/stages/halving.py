"""Runs tasks as one job, and in halves when the job dies, so that a poisonous task ends up alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prism_assets.domain.errors import EngineFailed, EngineUnavailable

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_FAILURES_BEYOND_HALVING = 3


@dataclass
class Halving(Generic[_Task, _Result]):
    """One piece of work. `task_id` and `result_id` tell which result answers which task.

    `poisoned` makes the result of a task that killed the job when it was alone. When job after job dies and not one
    task succeeds, `probe` gives the engine something harmless: if it dies of that too, the engine itself is sick,
    which is EngineUnavailable, and no task is blamed.
    """

    run: Callable[[Sequence[_Task]], Iterator[_Result]]
    task_id: Callable[[_Task], Hashable]
    result_id: Callable[[_Result], Hashable]
    poisoned: Callable[[_Task, EngineFailed], _Result]
    probe: Callable[[], None]
    _succeeded: bool = False
    _deaths: int = 0

    def results(self, tasks: Sequence[_Task]) -> Iterator[_Result]:
        """Yields the result of every task, as each is there."""
        patience = len(tasks).bit_length() + _FAILURES_BEYOND_HALVING
        yield from self._part(tasks, patience if len(tasks) > 1 else None)

    def _part(self, tasks: Sequence[_Task], patience: int | None) -> Iterator[_Result]:
        done: set[Hashable] = set()
        try:
            for result in self.run(tasks):
                self._succeeded = True
                done.add(self.result_id(result))
                yield result
        except EngineFailed as error:
            self._deaths += 1
            if patience is not None and not self._succeeded and self._deaths > patience:
                self._look_at_engine()
            left = [task for task in tasks if self.task_id(task) not in done]
            if len(left) > 1:
                yield from self._part(left[: len(left) // 2], patience)
                yield from self._part(left[len(left) // 2 :], patience)
            elif left and len(tasks) > 1:
                yield from self._part(left, patience)
            elif left:
                yield self.poisoned(left[0], error)

    def _look_at_engine(self) -> None:
        try:
            self.probe()
        except EngineFailed as error:
            raise EngineUnavailable(f"the engine fails whatever it is given: {error}") from error
        self._deaths = 0
