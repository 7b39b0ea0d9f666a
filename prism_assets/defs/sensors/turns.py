"""Turns of sensors that have more to look at than a tick has time for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def in_turn(names: Sequence[str], first: str) -> list[str]:
    """Returns the names rotated to start with `first`, or unchanged if it is not among them."""
    start = names.index(first) if first in names else 0
    return [*names[start:], *names[:start]]


def groups_after(names: Sequence[str], last: str, most: int, at_once: int) -> Iterator[Sequence[str]]:
    """Yields `most` names in groups of `at_once`, in a circle after `last`, the last name of the former tick."""
    turn = [*(name for name in names if name > last), *(name for name in names if name <= last)][:most]
    for start in range(0, len(turn), at_once):
        yield turn[start : start + at_once]
