"""How much a process may grow while DuckDB answers."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from prism_assets.domain.errors import ExpressionsFailed
from prism_assets.kernels.expressions import session
from prism_assets.kernels.expressions.memory import ROOM, confined
from prism_assets.kernels.expressions.session import NeedsMemory, Session


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
        waiting.result(timeout=120)
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


class Clock:
    """A clock of queries that take a second with a long text, and then exceed the memory."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def answer(self, rows: pa.Table, ends: float) -> pa.Table:
        if self.seconds >= ends:
            raise ExpressionsFailed("too slow")
        if pc.max(pc.binary_length(rows["t"])).as_py() < 1_000:
            return rows
        self.seconds += 1
        raise NeedsMemory("too much")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(session, "time", made)
    return made


def a_block(hostile: int) -> pa.Table:
    """A thousand rows, hostile ones among them."""
    return pa.table({"t": ["x" * 1_000 if number < hostile else "x" for number in range(1_000)]})


def nothing(row: pa.Table) -> pa.Table:
    return pa.table({"t": pa.nulls(row.num_rows, pa.string())})


def test_many_rows_that_need_memory_take_no_time_of_their_block(clock: Clock) -> None:
    found = Session((), str, 60.0).answer_in_parts(clock.answer, a_block(90), nothing)
    assert clock.seconds > 180
    assert found["t"].to_pylist() == [None] * 90 + ["x"] * 910


def test_rows_that_need_memory_have_so_much_time_in_all_blocks_of_an_object(clock: Clock) -> None:
    opened, block = Session((), str, 60.0), a_block(30)
    for _ in range(4):
        opened.answer_in_parts(clock.answer, block, nothing)
    with pytest.raises(ExpressionsFailed, match="too slow"):
        opened.answer_in_parts(clock.answer, block, nothing)
    assert 300 < clock.seconds <= 360 + 60
