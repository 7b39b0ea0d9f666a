"""How much a process may grow while DuckDB answers."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor

import pytest

from prism_assets.kernels.expressions.memory import ROOM, confined


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def test_what_is_beyond_the_room_is_refused_and_all_else_is_given() -> None:
    with confined():
        assert len(bytearray(ROOM // 8)) == ROOM // 8
        with pytest.raises(MemoryError):
            bytearray(4 * ROOM)
    assert len(bytearray(2 * ROOM)) == 2 * ROOM


def test_the_limit_of_before_is_put_back_with_the_last_that_leaves() -> None:
    before = limit()
    with ThreadPoolExecutor(1) as other:
        with confined():
            entered = confined()
            other.submit(entered.__enter__).result()
        assert limit() != before
        other.submit(entered.__exit__, None, None, None).result()
    assert limit() == before


def test_a_limit_that_is_lower_stays() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with confined():
        lower = limit() - 1
    resource.setrlimit(resource.RLIMIT_AS, (lower, hard))
    try:
        with confined():
            assert limit() == lower
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
