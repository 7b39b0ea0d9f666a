"""Sessions, connections, files, threads and memory of a long-lived process, and whether they grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import psutil

COUNTS = ("sessions", "connections", "handles", "threads")
_SLACK = 1.1
"""Allocators and Java's heap give memory back late."""


@dataclass(frozen=True)
class Held:
    """One look at a process."""

    sessions: int
    """Connections to PostgreSQL."""
    connections: int
    """All other connections over TCP."""
    handles: int
    """Open files, sockets among them."""
    threads: int
    megabytes: float
    """Private memory."""


def held_by(process: psutil.Process, postgres_port: int) -> Held:
    """Looks at a process once; raises psutil.Error where it has ended."""
    with process.oneshot():
        remote = [item.raddr.port for item in process.net_connections("tcp") if item.raddr]
        sessions = remote.count(postgres_port)
        return Held(
            sessions=sessions,
            connections=len(remote) - sessions,
            handles=process.num_fds(),
            threads=process.num_threads(),
            megabytes=process.memory_full_info().uss / (1 << 20),
        )


def growing(looks: Sequence[Held]) -> list[str]:
    """Returns what grew, in words, from looks at even times.

    The first third fills caches and pools. After it a count grows if its least value of the last third is above its
    greatest value of the middle third: what comes and goes stays below. Memory grows if its median does, by a tenth.
    """
    middle, last = looks[len(looks) // 3 : len(looks) * 2 // 3], looks[len(looks) * 2 // 3 :]
    if not middle or not last:
        return []
    found = []
    for name in COUNTS:
        before, after = max(getattr(look, name) for look in middle), min(getattr(look, name) for look in last)
        if after > before:
            found.append(f"{name} grew from {before} to {after}")
    usual, later = (median(look.megabytes for look in third) for third in (middle, last))
    if later > usual * _SLACK:
        found.append(f"memory grew from {usual:.0f} to {later:.0f} MB")
    return found
