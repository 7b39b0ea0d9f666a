"""Divides tasks into the shares of single Spark tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")

_LEAST_SHARES = 4
"""Small jobs, too, use a few cores, and the lengths of their shares even out."""
_SHARE_TASKS, _SHARE_BYTES = 8, 1 << 20
"""A smaller share costs more for its Spark task than for its work."""


def least_shares(tasks: int, total_bytes: int, share_bytes: int, slots: int) -> int:
    """Returns the least number of shares: one a slot, unless the shares became too small.

    More shares than slots make whole rounds, so that the last round leaves no slot idle.
    """
    by_bytes = -(-total_bytes // share_bytes)
    if by_bytes > slots:
        return max(_LEAST_SHARES, -(-by_bytes // slots) * slots)
    return max(_LEAST_SHARES, min(slots, max(tasks // _SHARE_TASKS, total_bytes // _SHARE_BYTES)))


def divide(tasks: Sequence[_T], size: Callable[[_T], int], share_bytes: int, least: int) -> list[list[_T]]:
    """Packs tasks into even shares of about `share_bytes`, and into at least `least` shares if there are enough tasks.

    Deals out the biggest tasks first, each to the lightest share. Takes n log n time for n tasks.
    """
    if not tasks:
        return []
    total = sum(map(size, tasks))
    count = min(len(tasks), max(least, -(-total // share_bytes)))
    shares: list[list[_T]] = [[] for _ in range(count)]
    lightest = [(0, 0, index) for index in range(count)]  # a heap of (weight, tasks, index) by share
    for task in sorted(tasks, key=size, reverse=True):
        weight, dealt, index = lightest[0]
        shares[index].append(task)
        heapq.heapreplace(lightest, (weight + size(task) + 1, dealt + 1, index))
    return shares
