"""Runs tasks as one job.

If the job dies or leaves tasks unanswered, runs these in halves, until a fatal task runs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from prism_assets.domain.errors import (
    EngineFailed,
    EngineUnavailable,
    InvariantBroken,
    KeyOccupied,
    PrismError,
    StoreUnavailable,
)
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Failure, Result, Task
from prism_assets.engine.base import Engine

_Result = TypeVar("_Result", bound=Result)


def run_bisected(engine: Engine, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
    """Yields one result for every task, as soon as it exists.

    A task that ran alone is blamed for the death of the job, or for a missing result. Before the blame, the engine runs
    a harmless task. If the engine dies of the harmless task, too, raises EngineUnavailable and blames no task.
    """
    left = {task.task_id: task for task in tasks}
    error = EngineFailed("the engine ended without a result for it")
    try:
        for result in engine.run(tasks, definitions):
            if left.pop(result.task_id, None) is not None:
                yield result
    except EngineFailed as died:
        error = died
    rest = list(left.values())
    if len(tasks) == 1 and rest:
        check_engine(engine)
        yield rest[0].failed(Failure(message=str(error), transient=False, killed=True))
    elif rest:
        half = (len(rest) + 1) // 2
        yield from run_bisected(engine, rest[:half], definitions)
        if rest[half:]:
            yield from run_bisected(engine, rest[half:], definitions)


def error_of(failures: Sequence[Failure], text: str, advice_if_killed: str = "") -> PrismError:
    """Returns the error of work with failed tasks. The error is transient if waiting may help every failed task."""
    if any(failure.occupied for failure in failures):
        return KeyOccupied(text)
    if any(failure.killed for failure in failures):
        return EngineFailed(text + advice_if_killed)
    return StoreUnavailable(text) if all(failure.transient for failure in failures) else InvariantBroken(text)


def check_engine(engine: Engine) -> None:
    """Runs a harmless task. Raises EngineUnavailable if the engine dies of it."""
    try:
        engine.probe()
    except EngineFailed as error:
        raise EngineUnavailable(f"the engine fails whatever it is given: {error}") from error
