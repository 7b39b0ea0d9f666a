"""The child process of a live worker: what it converts, what its death costs, and when it ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prism_assets.domain.errors import EngineUnavailable
from prism_assets.engine.child import COMMAND, ChildEngine
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.crash import processes
from prism_assets_tests.engine.poisoned_child import poisoned_engine
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


@pytest.fixture
def engine(world: World, tmp_path: Path) -> Iterator[ChildEngine]:
    """An engine whose child dies over objects with such names."""
    world.apply(a_table())
    made = poisoned_engine(world.context.lake, tmp_path)
    yield made
    made.close()


def states(world: World) -> dict[str, tuple[str, int]]:
    """The state and the attempts of each object, by the last part of its key."""
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT object_key, state, attempts FROM prism_staging_objects")
        return {row.object_key.rpartition("/")[2]: (row.state, row.attempts) for row in rows}


def until(is_there: Callable[[], bool]) -> None:
    """Waits for something that another process does."""
    end = time.monotonic() + 60
    while not is_there():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_an_object_that_kills_its_process_fails_alone(world: World, engine: ChildEngine) -> None:
    for name in ("1", "2", "fatal", "3"):
        world.drop(some_rows(2, utc(NOON)), name=name)
    world.discover(NOON)
    report = run_stream(replace(world.context, engine=engine), now=utc(NOON))
    assert (report.objects, report.retried, report.errors) == (3, 1, ())
    assert {name.lstrip("0").removesuffix(".gz"): state for name, state in states(world).items()} == {
        "1": ("done", 0),
        "2": ("done", 0),
        "3": ("done", 0),
        "fatal": ("pending", 1),
    }


def test_a_death_by_chance_costs_an_object_no_rest_and_no_attempt(world: World, engine: ChildEngine) -> None:
    world.drop(some_rows(2, utc(NOON)), name="once")
    world.discover(NOON)
    assert run_stream(replace(world.context, engine=engine), now=utc(NOON)).objects == 1
    assert (engine.deaths, list(states(world).values())) == (1, [("done", 0)])


def test_a_child_that_grew_too_large_is_replaced(world: World) -> None:
    world.apply(a_table())
    engine = ChildEngine(world.context.lake, most_bytes=0)
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    assert run_stream(replace(world.context, engine=engine), now=utc(NOON)).rows_out == 2
    assert (engine.pid, engine.deaths) == (None, 0)


def test_a_child_ends_when_its_parent_was_killed_within_a_write() -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b'"cut within a sha')
        child.stdin.close()
        assert child.wait(timeout=60) == 0


def test_a_child_that_reads_nothing_does_not_hold_its_worker(world: World) -> None:
    """The definition makes a share that is larger than a pipe."""
    world.apply(a_table(columns=[f"{{name: column_with_a_long_name_{n}, type: string}}" for n in range(1_500)]))
    command = (sys.executable, "-c", "import threading; threading.Event().wait()")
    engine = ChildEngine(world.context.lake, command=command, silent_seconds=0.1)
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    with pytest.raises(EngineUnavailable, match="the engine fails whatever it is given"):
        run_stream(replace(world.context, engine=engine), now=utc(NOON))
    assert engine.deaths == 3, "two children for the object, and one for the probe"


def test_a_child_ends_in_the_middle_of_its_work_when_its_parent_is_killed(
    world: World, engine: ChildEngine, tmp_path: Path
) -> None:
    world.drop(some_rows(2, utc(NOON)), name="endless")
    world.discover(NOON)
    parent = processes.start_function(
        world, "prism_assets_tests.engine.poisoned_child:convert_endlessly", {"folder": str(tmp_path), "now": NOON}
    )
    until((tmp_path / "pid").exists)
    handle = os.pidfd_open(int((tmp_path / "pid").read_text()))
    try:
        parent.kill()
        parent.finish()
        ended, _, _ = select.select([handle], [], [], 60)
        assert ended, "the child outlived its parent"
    finally:
        os.close(handle)
