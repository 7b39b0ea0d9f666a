"""Core-seconds, user and system, of all processes that do the work of a benchmark."""

from __future__ import annotations

import resource
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import psutil

from prism_local.processes import family
from prism_local.stack import LocalStack

OWN = "this process"
STORES = frozenset({"s3", "aws"})
"""Servers in the place of AWS. Their core-seconds stand beside the work, not in it."""


class CoreMeter(Protocol):
    """Reads the core-seconds so far by group of processes."""

    def read(self) -> Mapping[str, float]: ...


class OwnCores:
    """Counts this process with all its threads, and its ended children."""

    def read(self) -> Mapping[str, float]:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {OWN: time.process_time() + ended.ru_utime + ended.ru_stime}


class FamilyCores:
    """Counts a process and its descendants, those too that ended since.

    A parent that waits for a child takes its time over. One that ignores SIGCHLD, as pyspark's daemon does, loses the
    time: here it stays, as far as the last reading saw it.
    """

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._seen: dict[psutil.Process, _Times] = {}
        self._lost = 0.0

    @property
    def processes(self) -> Collection[psutil.Process]:
        """The processes of the last reading."""
        return self._seen.keys()

    def read(self) -> float:
        """Returns the core-seconds so far."""
        now = {process: times for process in family(self._root) if (times := _Times.of(process))}
        ended = sum(times.total for process, times in self._seen.items() if process not in now)
        taken_over = sum(
            times.of_children - self._seen[process].of_children
            for process, times in now.items()
            if process in self._seen
        )
        self._lost += max(0.0, ended - taken_over)
        self._seen = now
        return self._lost + sum(times.total for times in now.values())


@dataclass(frozen=True)
class _Times:
    own: float
    of_children: float
    """Of ended children for which the process waited."""

    @classmethod
    def of(cls, process: psutil.Process) -> _Times | None:
        with suppress(psutil.Error):
            times = process.cpu_times()
            return cls(times.user + times.system, times.children_user + times.children_system)
        return None

    @property
    def total(self) -> float:
        return self.own + self.of_children


class StackCores:
    """Counts this process with its children, and each service of a local stack with its own, as Spark's workers."""

    def __init__(self, stack: LocalStack) -> None:
        self._services = {
            item.name: FamilyCores(psutil.Process(item.pid)) for item in stack.status() if item.pid is not None
        }

    def read(self) -> Mapping[str, float]:
        found = {**OwnCores().read(), **{name: service.read() for name, service in self._services.items()}}
        served = {process for service in self._services.values() for process in service.processes}
        for child in psutil.Process().children(recursive=True):
            if child not in served and (times := _Times.of(child)):
                found[OWN] += times.total
        return found


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float]:
    """Returns the core-seconds of the work, and of the servers in the place of AWS."""
    used = {name: max(0.0, seconds - before.get(name, 0.0)) for name, seconds in after.items()}
    stores = sum(seconds for name, seconds in used.items() if name in STORES)
    return sum(used.values()) - stores, stores
