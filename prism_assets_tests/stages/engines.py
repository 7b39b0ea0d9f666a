"""Engines that fail or stand still where a test wants them to; everything else is done by the one in this process."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prism_assets.domain.errors import EngineFailed, EngineUnavailable
from prism_assets.domain.work import (
    ConvertResult,
    ConvertTask,
    Failure,
    MergeResult,
    MergeTask,
    RepairResult,
    RepairTask,
)
from prism_assets.engine.base import Definitions, Engine
from prism_assets_tests.world import World

_Result = TypeVar("_Result")


@dataclass
class PoisonedEngine:
    """Dies as a whole, like a worker killed for memory, when a task with the poisonous key is among its tasks."""

    inner: Engine
    poison: str
    sick: bool = False
    jobs: list[int] = field(default_factory=list)

    def probe(self) -> None:
        """Harmless work harms it only if it is sick."""
        if self.sick:
            raise EngineFailed("the worker was killed")

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        self.jobs.append(len(tasks))
        if self.sick or any(task.key == self.poison for task in tasks):
            raise EngineFailed("the worker was killed")
        return self.inner.convert(tasks, definitions)

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        self.jobs.append(len(tasks))
        if self.sick or any(task.source.key == self.poison for task in tasks):
            raise EngineFailed("the worker was killed")
        return self.inner.repair(tasks, definitions)

    def merge(self, tasks: Sequence[MergeTask], definitions: Definitions) -> Iterator[MergeResult]:
        self.jobs.append(len(tasks))
        if self.sick or any(self.poison in task.output_key for task in tasks):
            raise EngineFailed("the worker was killed")
        return self.inner.merge(tasks, definitions)


@dataclass
class FailingEngine:
    """Uploads everything and then reports a failure, for as many jobs as it is told to."""

    inner: Engine
    times: int
    transient: bool = True

    def probe(self) -> None:
        """Harmless work harms it not."""

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        for result in self.inner.convert(tasks, definitions):
            if self.times > 0:
                self.times -= 1
                failure = Failure(message="the store coughed", transient=self.transient)
                yield ConvertResult(staging_object_id=result.staging_object_id, failure=failure)
            else:
                yield result

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        for result in self.inner.repair(tasks, definitions):
            if self.times > 0:
                self.times -= 1
                failure = Failure(message="the store coughed", transient=self.transient)
                yield RepairResult(staging_object_id=result.staging_object_id, failure=failure)
            else:
                yield result

    def merge(self, tasks: Sequence[MergeTask], definitions: Definitions) -> Iterator[MergeResult]:
        for result in self.inner.merge(tasks, definitions):
            if self.times > 0:
                self.times -= 1
                failure = Failure(message="the store coughed", transient=self.transient)
                yield dataclasses.replace(result, failure=failure)
            else:
                yield result


@dataclass
class PausingEngine:
    """Calls `pause` before its first job: what happens there, happens while this worker stands still."""

    inner: Engine
    pause: Callable[[], object]
    _paused: bool = False

    def _once(self) -> None:
        if not self._paused:
            self._paused = True
            self.pause()

    def probe(self) -> None:
        """Harmless work harms it not."""

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        self._once()
        return self.inner.convert(tasks, definitions)

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        self._once()
        return self.inner.repair(tasks, definitions)

    def merge(self, tasks: Sequence[MergeTask], definitions: Definitions) -> Iterator[MergeResult]:
        self._once()
        return self.inner.merge(tasks, definitions)


@dataclass
class VanishingEngine:
    """Goes away for good after so many results."""

    inner: Engine
    results: int
    jobs: list[int] = field(default_factory=list)

    def probe(self) -> None:
        """Not even that works when it is gone."""
        if self.results <= 0:
            raise EngineUnavailable("the engine is gone")

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        self.jobs.append(len(tasks))
        yield from self._until_gone(self.inner.convert(tasks, definitions))

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        self.jobs.append(len(tasks))
        yield from self._until_gone(self.inner.repair(tasks, definitions))

    def merge(self, tasks: Sequence[MergeTask], definitions: Definitions) -> Iterator[MergeResult]:
        self.jobs.append(len(tasks))
        yield from self._until_gone(self.inner.merge(tasks, definitions))

    def _until_gone(self, results: Iterator[_Result]) -> Iterator[_Result]:
        while self.results > 0:
            self.results -= 1
            try:
                yield next(results)
            except StopIteration:
                self.results += 1
                return
        raise EngineUnavailable("the engine is gone")


@dataclass
class ForgottenEngine:
    """Its driver dies as the repair begins; the tasks of the repair go on when `go_on` is called."""

    inner: Engine
    _work: tuple[Sequence[RepairTask], Definitions] | None = None

    def probe(self) -> None:
        """Harmless work harms it not."""

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        return self.inner.convert(tasks, definitions)

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        self._work = (tasks, definitions)
        raise EngineUnavailable("the driver died")

    def merge(self, tasks: Sequence[MergeTask], definitions: Definitions) -> Iterator[MergeResult]:
        return self.inner.merge(tasks, definitions)

    def go_on(self) -> list[RepairResult]:
        assert self._work is not None
        return list(self.inner.repair(*self._work))


def another_worker(world: World, engine: Engine) -> World:
    """The same platform as a second worker with an engine of its own sees it."""
    return dataclasses.replace(world, context=dataclasses.replace(world.context, engine=engine, worker="another"))


def expire_leases(world: World) -> None:
    """Lets all leases run out, as if their holders had stood still for an hour."""
    _move_heartbeats(world, "- interval '1 hour'")


def keep_leases(world: World) -> None:
    """Lets no lease run out for an hour, as if their holders renewed them all the time."""
    _move_heartbeats(world, "+ interval '1 hour'")


def _move_heartbeats(world: World, change: str) -> None:
    with world.context.database.begin() as connection:
        for table, running in (("prism_stream_batches", "state = 'running'"), ("prism_merge_jobs", "ongoing_mark > 0")):
            connection.exec_driver_sql(f"UPDATE {table} SET heartbeat_time = heartbeat_time {change} WHERE {running}")


def rest_is_over(world: World) -> None:
    """Ends the pause of objects that wait for their next attempt."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL WHERE state = 'pending'")


def in_background(work: Callable[[], object]) -> threading.Thread:
    """Starts work in a thread."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread
