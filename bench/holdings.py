"""Counts sessions, handles, threads and memory of a running system's processes every ten seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from bench.background import BackgroundThread
from bench.usage import Groups
from prism_assets_tests.defs.held import COUNTS, Held, growing, held_by

_MOSTLY = 0.9
"""A process present in this share of the samples is long-lived. Runs come and go."""
_TOGETHER = ("postgres",)
"""Servers with a process per session. They are sampled as a whole, by threads and memory."""
_WHOLE = 0
"""The process id recorded for such a server."""


@dataclass(frozen=True)
class Holding:
    """All samples of one long-lived process."""

    role: str
    pid: int
    looks: tuple[Held, ...]

    @property
    def growth(self) -> list[str]:
        """A sentence about each count that grew."""
        return [f"{self.role} ({self.pid}): {words}" for words in growing(self.looks)]

    def row(self) -> tuple[str, ...]:
        """Returns the table row: median and maximum of each count, and first, median and maximum of memory."""
        cells = []
        for name in (*COUNTS, "megabytes"):
            values = sorted(getattr(look, name) for look in self.looks)
            cells.append(f"{values[len(values) // 2]:.0f} / {values[-1]:.0f}")
        return (self.role, str(self.pid), *cells)


HEADS = ("process", "id", *(f"{name}: median / most" for name in COUNTS), "MB: median / most")


class HoldingsMeter(BackgroundThread):
    """Samples groups of processes from its own thread, within a context."""

    def __init__(self, groups: Callable[[], Groups], postgres_port: int, seconds: float = 10.0) -> None:
        super().__init__()
        self._groups, self._port, self._seconds = groups, postgres_port, seconds
        self._looks: dict[tuple[str, int], list[Held]] = {}
        self._sessions: list[int] = []

    @property
    def most_sessions(self) -> int:
        """The greatest number of PostgreSQL sessions over all processes, short-lived ones included."""
        return max(self._sessions, default=0)

    def holdings(self) -> tuple[Holding, ...]:
        """Returns the long-lived processes by role."""
        least = _MOSTLY * len(self._sessions)
        found = [Holding(role, pid, tuple(looks)) for (role, pid), looks in self._looks.items() if len(looks) >= least]
        return tuple(sorted(found, key=lambda holding: (holding.role, holding.pid)))

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._sample()

    def _sample(self) -> None:
        sessions, found = 0, dict[tuple[str, int], list[Held]]()
        for role, members in self._groups().items():
            for process in members:
                with suppress(psutil.Error):
                    held = held_by(process, self._port)
                    sessions += held.sessions
                    found.setdefault((role, _WHOLE if role in _TOGETHER else process.pid), []).append(held)
        for name, looks in found.items():
            self._looks.setdefault(name, []).append(looks[0] if name[1] != _WHOLE else _sum(looks))
        self._sessions.append(sessions)


def _sum(looks: Sequence[Held]) -> Held:
    """Adds up a server's processes. Ignores handles, because a session opens the files of tables it touches."""
    threads, megabytes = sum(look.threads for look in looks), sum(look.megabytes for look in looks)
    return Held(sessions=0, connections=0, handles=0, threads=threads, megabytes=megabytes)
