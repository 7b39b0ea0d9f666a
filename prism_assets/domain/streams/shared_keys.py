"""Decides whether two glob patterns share a key, so that `apply` can prove that no object has two tables."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from prism_assets.domain.streams.key_patterns import ANY_FOLDERS

_STAR = "*"
# A set ends at the first bracket after its first character, as in key_patterns.py.
_PART = re.compile(r"\[!?.[^\]]*\]|.", re.DOTALL)
_Part = TypeVar("_Part")


def share_a_key(one: str, other: str) -> bool:
    """Whether some key matches both patterns.

    A pattern is a small automaton, with a loop for each star. Both run side by side over every key at once.
    """
    return _meet(one.split("/"), other.split("/"), ANY_FOLDERS, _share_a_name)


@lru_cache(maxsize=1_024)
def _share_a_name(one: str, other: str) -> bool:
    return _meet(_PART.findall(one), _PART.findall(other), _STAR, _share_a_character)


@lru_cache(maxsize=1_024)
def _share_a_character(one: str, other: str) -> bool:
    """Whether two parts for one character have one in common: a character, `?`, or a set.

    Sets are intervals, so that an end of one of them, or its neighbour, is a witness if there is any.
    """
    ends = {ord(character) for character in one + other} | {ord("m")}
    near = {chr(code + step) for code in ends for step in (-1, 0, 1) if 0 < code + step < 0x110000} - {"/"}
    expressions = [re.compile(fnmatch.translate(part)) for part in (one, other)]
    return any(all(expression.match(character) for expression in expressions) for character in near)


def _meet(one: Sequence[_Part], other: Sequence[_Part], star: _Part, share: Callable[[_Part, _Part], bool]) -> bool:
    """Whether two sequences match a common one. `star` in a sequence stands for any number of parts."""
    end = len(one), len(other)
    seen, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        left, right = waiting.pop()
        if (left, right) == end:
            return True
        here = one[left] if left < end[0] else None
        there = other[right] if right < end[1] else None
        following = []
        if here == star:
            following += [(left + 1, right), *([(left, right + 1)] if there is not None else [])]
        if there == star:
            following += [(left, right + 1), *([(left + 1, right)] if here is not None else [])]
        if here is not None and there is not None and star not in (here, there) and share(here, there):
            following.append((left + 1, right + 1))
        for pair in following:
            if pair not in seen:
                seen.add(pair)
                waiting.append(pair)
    return False
