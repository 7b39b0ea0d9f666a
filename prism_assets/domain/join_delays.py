"""How far the parts of records lie apart, counted in steps: figures that can be added up over tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000, 7_776_000, 34_560_000,
)  # fmt: skip
"""Upper bounds in seconds; what lies beyond the last one is counted behind it."""


def added(counts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The counts of several tasks, each of which has one for every step or none at all."""
    told = [item for item in counts if item]
    return tuple(map(sum, zip(*told, strict=True)))


def at_most(counts: Sequence[int], share: float) -> float | None:
    """The step that this share of what was counted does not exceed, in seconds; None where nothing was counted."""
    wanted, seen = share * sum(counts), 0
    for step, count in zip((*STEPS, math.inf), counts, strict=False):
        seen += count
        if seen and seen >= wanted:
            return step
    return None
