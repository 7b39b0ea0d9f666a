"""Latency of rows, from the arrival of their object until readers see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Seconds from arrival to readable. Half of the rows took no longer than the median."""

    median: float
    longest: float


def summarize(latencies: Iterable[tuple[int, float]]) -> Latencies | None:
    """Summarizes (rows, seconds) of objects. None without rows. A lagging clock counts as no delay."""
    ordered = sorted((max(seconds, 0.0), rows) for rows, seconds in latencies if rows > 0)
    if not ordered:
        return None
    half = sum(rows for _, rows in ordered) / 2
    seen = accumulate(rows for _, rows in ordered)
    median = next(seconds for (seconds, _), rows in zip(ordered, seen, strict=True) if rows >= half)
    return Latencies(median=median, longest=ordered[-1][0])
