"""Delays between the parts of records, counted in steps, so that counts of tasks can be added."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000, 7_776_000, 34_560_000,
)  # fmt: skip
"""Upper bounds in seconds. A last count takes longer delays."""


def added(counts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Adds the counts of several tasks. Each has a count for every step, or none at all."""
    counted = [item for item in counts if item]
    return tuple(map(sum, zip(*counted, strict=True)))


def at_most(counts: Sequence[int], share: float) -> float | None:
    """Returns the step in seconds not exceeded by this share of the counts, or None without any."""
    limit, seen = share * sum(counts), 0
    for step, count in zip((*STEPS, math.inf), counts, strict=False):
        seen += count
        if seen and seen >= limit:
            return step
    return None
