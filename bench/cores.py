"""Core-seconds, user and system, of all processes that do the work of a benchmark."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from contextlib import suppress
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


class StackCores:
    """Counts this process with its children, and each service of a local stack with its own, as Spark's workers."""

    def __init__(self, stack: LocalStack) -> None:
        self._roots = {item.name: psutil.Process(item.pid) for item in stack.status() if item.pid is not None}

    def read(self) -> Mapping[str, float]:
        found = dict(OwnCores().read())
        served = set[int]()
        for name, root in self._roots.items():
            found[name] = 0.0
            with suppress(psutil.Error):
                for process in family(root):
                    served.add(process.pid)
                    found[name] += process_seconds(process)
        for child in psutil.Process().children(recursive=True):
            if child.pid not in served:
                found[OWN] += process_seconds(child)
        return found


def process_seconds(process: psutil.Process) -> float:
    """Returns the core-seconds of a process and of its ended children."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float]:
    """Returns the core-seconds of the work, and of the servers in the place of AWS."""
    used = {name: max(0.0, seconds - before.get(name, 0.0)) for name, seconds in after.items()}
    stores = sum(seconds for name, seconds in used.items() if name in STORES)
    return sum(used.values()) - stores, stores
