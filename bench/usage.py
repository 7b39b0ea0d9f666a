"""Samples CPU time and memory of groups of processes beside other work."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from bench.background import BackgroundThread
from prism_local.processes import family
from prism_local.stack import LocalStack

Groups = Mapping[str, Sequence[psutil.Process]]

_CODE_SERVER, _RUNS = "code server", "runs"
_DAGSTER_GROUPS = {
    "dagster._daemon": "daemon",
    "dagster_webserver": "web server",
    "code-server": _CODE_SERVER,
    "grpc": _CODE_SERVER,
    "spawn_main": _RUNS,
}


@dataclass(frozen=True)
class GroupUsage:
    """A group's usage: CPU seconds, and bytes of memory with shared pages divided among their users."""

    cpu_seconds: float
    mean_bytes: float
    peak_bytes: int


@dataclass
class _Samples:
    first: float | None = None
    last: float = 0.0
    bytes: list[int] = field(default_factory=list)


class UsageMeter(BackgroundThread):
    """Samples groups of processes from its own thread, within a context."""

    def __init__(self, groups: Callable[[], Groups], seconds: float = 10.0) -> None:
        super().__init__()
        self._groups, self._seconds = groups, seconds
        self._samples: dict[str, _Samples] = {}

    def __enter__(self) -> UsageMeter:
        self._sample()
        return super().__enter__()

    def usage(self) -> dict[str, GroupUsage]:
        """Returns each group's usage so far. A later group counts from its first sample."""
        return {
            name: GroupUsage(
                cpu_seconds=max(0.0, samples.last - (samples.first or 0.0)),
                mean_bytes=statistics.mean(samples.bytes),
                peak_bytes=max(samples.bytes),
            )
            for name, samples in sorted(self._samples.items())
        }

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._sample()
        self._sample()

    def _sample(self) -> None:
        groups = self._groups()
        seconds = dict.fromkeys(groups, 0.0)
        for name, members in groups.items():
            for process in members:
                cpu, reaped = _cpu_seconds(process)
                seconds[name] += cpu
                # The code server is the parent of the runs, so its reaped children are runs.
                heir = _RUNS if name == _CODE_SERVER else name
                seconds[heir] = seconds.get(heir, 0.0) + reaped
        for name, total in seconds.items():
            samples = self._samples.setdefault(name, _Samples())
            samples.first = total if samples.first is None else samples.first
            samples.last = max(samples.last, total)
            samples.bytes.append(sum(_own_memory(process) for process in groups.get(name, ())))


def whole_system(stack: LocalStack, dagster: Callable[[], Sequence[psutil.Process]]) -> Callable[[], Groups]:
    """Returns the process groups of a local stack by service, and of Dagster by role."""

    def groups() -> Groups:
        found: dict[str, list[psutil.Process]] = {}
        for service in stack.status():
            if service.pid is not None:
                with suppress(psutil.NoSuchProcess):
                    found[service.name] = family(psutil.Process(service.pid))
        for process in dagster():
            found.setdefault(_role(process), []).append(process)
        return found

    return groups


def _role(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        words = process.cmdline()
        for word, role in _DAGSTER_GROUPS.items():
            if any(word in each for each in words[:6]):
                return role
    return "dagster dev"


def _cpu_seconds(process: psutil.Process) -> tuple[float, float]:
    """Returns the CPU seconds of the process itself, and of its ended children."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system, times.children_user + times.children_system
    return 0.0, 0.0


def _own_memory(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        full = process.memory_full_info()
        return int(getattr(full, "pss", 0) or full.uss)
    return 0
