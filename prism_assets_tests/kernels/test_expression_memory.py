"""How much a process may grow while DuckDB answers."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

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


def test_the_limit_of_before_is_put_back_behind_errors_too() -> None:
    before = limit()
    with suppress(KeyError), confined():
        assert limit() != before
        raise KeyError
    assert limit() == before


def test_one_thread_is_confined_at_a_time() -> None:
    limits = []

    def enter() -> None:
        with confined():
            limits.append(limit())

    with ThreadPoolExecutor(1) as other:
        with confined():
            own = limit()
            waiting = other.submit(enter)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            assert limit() == own
        waiting.result(timeout=30)
    assert len(limits) == 1


def test_a_child_of_a_process_that_is_confined_can_be_so_itself() -> None:
    with confined():
        child = os.fork()
        if child == 0:
            with confined():
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


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
