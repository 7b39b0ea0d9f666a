"""Divides tasks into the shares of single Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def divide(tasks: Sequence[_T], size: Callable[[_T], int], share_bytes: int, least: int) -> list[list[_T]]:
    """Packs tasks into even shares of about `share_bytes`, at least `least` of them if there are so many tasks.

    The biggest tasks are dealt out first, each to the lightest share.
    """
    if not tasks:
        return []
    total = sum(map(size, tasks))
    count = min(len(tasks), max(least, -(-total // share_bytes)))
    shares: list[list[_T]] = [[] for _ in range(count)]
    weights = [0] * count
    for task in sorted(tasks, key=size, reverse=True):
        lightest = min(range(count), key=lambda index: (weights[index], len(shares[index])))
        shares[lightest].append(task)
        weights[lightest] += size(task) + 1
    return shares
