"""Engines that fail or stand still on request. The engine of this process does all other work."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from prism_assets.domain.errors import EngineFailed, EngineUnavailable
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Failure, Task
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.domain.work.rebuild import RebuildTask
from prism_assets.domain.work.repair import RepairResult, RepairTask
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.engine.base import Engine
from prism_assets_tests.world import World

_Result = TypeVar("_Result")


@dataclass
class Through:
    """Passes every task on, except tasks of kernels with a method of the same name in a test's subclass."""

    inner: Engine

    @property
    def slots(self) -> int:
        return self.inner.slots

    def probe(self) -> None:
        self.inner.probe()

    def run(self, tasks: Sequence[Task[Any]], definitions: Definitions) -> Iterator[Any]:
        own = getattr(self, tasks[0].kernel, None) if tasks else None
        results: Iterator[Any] = (own or self.inner.run)(tasks, definitions)
        return results


@dataclass
class PoisonedEngine:
    """Dies as a whole, like a worker killed for memory, if a task has the poisonous key."""

    inner: Engine
    poison: str
    sick: bool = False
    jobs: list[int] = field(default_factory=list)

    slots = 1

    def probe(self) -> None:
        """Fails only if the engine is sick."""
        if self.sick:
            raise EngineFailed("the worker was killed")

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        self.jobs.append(len(tasks))
        if self.sick or any(map(self._is_poisonous, tasks)):
            raise EngineFailed("the worker was killed")
        return self.inner.run(tasks, definitions)

    def _is_poisonous(self, task: object) -> bool:
        if isinstance(task, WriteTask):
            return self.poison in (task.output_key or "")
        source = task.source if isinstance(task, RepairTask | RebuildTask) else task
        return isinstance(source, ConvertTask) and source.key == self.poison


@dataclass
class FailingEngine:
    """Uploads everything and then reports a failure, for a given number of jobs."""

    inner: Engine
    times: int
    transient: bool = True

    slots = 1

    def probe(self) -> None:
        """Succeeds."""

    def run(self, tasks: Sequence[Task[Any]], definitions: Definitions) -> Iterator[Any]:
        by_id = {task.task_id: task for task in tasks}
        for result in self.inner.run(tasks, definitions):
            if self.times > 0:
                self.times -= 1
                failure = Failure(message="the store coughed", transient=self.transient)
                wrote = isinstance(result, WriteResult)
                yield replace(result, failure=failure) if wrote else by_id[result.task_id].failed(failure)
            else:
                yield result


@dataclass
class PausingEngine:
    """Calls `pause` before one of its jobs, while this worker stands still."""

    inner: Engine
    pause: Callable[[], object]
    before: int = 1
    _jobs: int = 0

    slots = 1

    def probe(self) -> None:
        """Succeeds."""

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        self._jobs += 1
        if self._jobs == self.before:
            self.pause()
        return self.inner.run(tasks, definitions)


@dataclass
class VanishingEngine:
    """Goes away for good after so many results."""

    inner: Engine
    results: int
    jobs: list[int] = field(default_factory=list)

    slots = 1

    def probe(self) -> None:
        """Fails, too, once the engine is gone."""
        if self.results <= 0:
            raise EngineUnavailable("the engine is gone")

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        self.jobs.append(len(tasks))
        results = self.inner.run(tasks, definitions)
        while self.results > 0:
            self.results -= 1
            try:
                yield next(results)
            except StopIteration:
                self.results += 1
                return
        raise EngineUnavailable("the engine is gone")


@dataclass
class ForgottenEngine(Through):
    """Its driver dies when the repair begins. The tasks of the repair continue with `go_on`."""

    _work: tuple[Sequence[RepairTask], Definitions] | None = None

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        self._work = (tasks, definitions)
        raise EngineUnavailable("the driver died")

    def go_on(self) -> list[RepairResult]:
        assert self._work is not None
        return list(self.inner.run(*self._work))


def another_worker(world: World, engine: Engine) -> World:
    """Returns the platform of a second worker with its own engine."""
    return dataclasses.replace(world, context=dataclasses.replace(world.context, engine=engine, worker="another"))


def expire_leases(world: World) -> None:
    """Lets all leases run out, as if their holders had stood still for an hour."""
    _move_heartbeats(world, "- interval '1 hour'")


def keep_leases(world: World) -> None:
    """Lets no lease run out for an hour, as if their holders renewed them all the time."""
    _move_heartbeats(world, "+ interval '1 hour'")


def _move_heartbeats(world: World, change: str) -> None:
    with world.context.database.begin() as connection:
        for table, running in (
            ("prism_stream_batches", "state = 'running'"),
            ("prism_merge_jobs", "ongoing_mark > 0"),
            ("prism_leases", "true"),
        ):
            connection.exec_driver_sql(f"UPDATE {table} SET heartbeat_time = heartbeat_time {change} WHERE {running}")


def rest_is_over(world: World) -> None:
    """Ends the pause of objects before their next attempt."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL WHERE state = 'pending'")


def in_background(work: Callable[[], object]) -> threading.Thread:
    """Starts work in a thread."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread
