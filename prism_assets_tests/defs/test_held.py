"""Growth is what stays, and not what comes and goes."""

from __future__ import annotations

import socket
from dataclasses import replace

import psutil
import pytest

from prism_assets_tests.defs.held import COUNTS, Held, growing, held_by

CALM = Held(sessions=9, connections=1, handles=40, threads=20, megabytes=300)


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_rises_slowly_grows(name: str) -> None:
    looks = [replace(CALM, **{name: getattr(CALM, name) + number // 10}) for number in range(60)]
    assert [words.partition(" ")[0] for words in growing(looks)] == [name]


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_swings_or_fills_a_pool_first_does_not_grow(name: str) -> None:
    swings = [replace(CALM, **{name: getattr(CALM, name) + number % 7}) for number in range(60)]
    fills = [replace(CALM, **{name: getattr(CALM, name) + min(number, 15)}) for number in range(60)]
    assert growing(swings) == growing(fills) == []


def test_memory_may_swing_by_a_tenth() -> None:
    swings = [replace(CALM, megabytes=300 + number % 25) for number in range(60)]
    grows = [replace(CALM, megabytes=300 + 3 * number) for number in range(60)]
    assert growing(swings) == []
    assert growing(grows) == ["memory grew from 388 to 448 MB"]


def test_a_look_counts_sessions_and_other_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        port = server.getsockname()[1]
        before = held_by(psutil.Process(), port)
        with socket.create_connection(server.getsockname()), socket.create_connection(other.getsockname()):
            after = held_by(psutil.Process(), port)
    assert after.sessions == before.sessions + 1
    assert after.connections == before.connections + 1
    assert after.handles == before.handles + 2
