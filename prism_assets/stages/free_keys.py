"""Runs tasks that write objects, again under other keys where other rows lie under theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from prism_assets.domain.work import Result, Task

_TRIES = 5
_Task = TypeVar("_Task", bound=Task[Any])
_Result = TypeVar("_Result", bound=Result)


def run_under_free_keys(
    run: Callable[[Sequence[_Task]], Iterator[_Result]],
    tasks: Sequence[_Task],
    under_next_key: Callable[[_Task], _Task | None],
) -> Iterator[_Result]:
    """Yields one result for every task, as each is there; `run` runs some of them as one job.

    What died before its record left rows under a key that may be others now. A task that finds such is tried again
    `under_next_key`, unless that is None, five times in all: its last result says that the key is occupied.
    """
    for turn in range(_TRIES):
        wanted = {task.task_id: task for task in tasks}
        tasks = []
        for result in run(list(wanted.values())):
            is_occupied = result.failure is not None and result.failure.occupied
            other = under_next_key(wanted[result.task_id]) if is_occupied and turn < _TRIES - 1 else None
            if other is None:
                yield result
            else:
                tasks.append(other)
        if not tasks:
            return
