"""Scenarios of a Spark job on any master: each takes a session of at least two cores, and a folder.

`python -m prism_assets_tests.engine.job_scenarios MASTER FOLDER` plays all of them on a classic master, because a
former client of Spark Connect cannot be a driver.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from prism_assets.domain.errors import EngineUnavailable
from prism_assets.engine.slots import count_slots
from prism_assets.engine.spark import SparkEngine
from prism_assets.engine.spark_errors import translated
from prism_assets.engine.streaming import stream_results
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets_tests.engine.waiting import until

Body = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _as_each_task(work: Callable[[int], str]) -> Body:
    """Returns a body that answers each task's number with the result of `work`."""

    def body(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_arrays([pa.array([work(number)], pa.string())], ["result"])

    return body


def _second_stands_still(folder: Path) -> Body:
    """Returns a body whose first task ends, and whose second records its process and runs for ever."""
    note = str(folder / "pid")

    def work(number: int) -> str:
        if number == 1:
            with open(note + ".new", "w") as file:
                file.write(str(os.getpid()))
            os.replace(note + ".new", note)
            while True:
                time.sleep(0.02)
        return str(number)

    return _as_each_task(work)


def results_arrive_while_other_tasks_run(session: Any, folder: Path) -> None:
    """The second task ends only after the result of the first has arrived."""
    go = str(folder / "go")

    def work(number: int) -> str:
        while number == 1 and not os.path.exists(go):
            time.sleep(0.02)
        return str(number)

    results = stream_results(session, 2, _as_each_task(work))
    assert next(results) == "0"
    Path(go).touch()
    assert list(results) == ["1"]


def equal_results_all_arrive(session: Any, _folder: Path) -> None:
    """Results of different tasks are told apart, even where they read the same."""
    assert list(stream_results(session, 3, _as_each_task(lambda _number: "the same"))) == ["the same"] * 3


def a_caller_that_stops_early_leaves_no_task(session: Any, folder: Path) -> None:
    """Closing the iterator ends the Python process of the running task."""
    results = stream_results(session, 2, _second_stands_still(folder))
    assert next(results) == "0"
    _until_gone(folder, results.close)  # type: ignore[attr-defined]  # it is a generator


def an_interrupt_leaves_no_task(session: Any, folder: Path) -> None:
    """Ctrl-C and Dagster's SIGTERM are raised in the thread waiting for a result."""
    for number in (signal.SIGINT, signal.SIGTERM):
        _interrupt(session, folder, number, lambda number: os.kill(os.getpid(), number))


def an_interrupt_that_wakes_nobody_leaves_no_task(session: Any, folder: Path) -> None:
    """A signal may come in the moment before a wait begins, or to another thread: nothing interrupts the wait then."""
    _interrupt(session, folder, signal.SIGTERM, lambda number: signal.pthread_kill(threading.get_ident(), number))


def _interrupt(session: Any, folder: Path, number: signal.Signals, send: Callable[[signal.Signals], object]) -> None:
    """Has another thread send a signal while this one waits for a result."""
    before = signal.signal(number, signal.default_int_handler)
    waits = threading.Event()

    def interrupt() -> None:
        waits.wait()
        until((folder / "pid").exists, "the second task")
        send(number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with closing(stream_results(session, 2, _second_stands_still(folder))) as results:  # type: ignore[type-var]
            assert next(results) == "0"
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal may come before the wait
                waits.set()
                next(results)
    finally:
        waits.set()
        thread.join()
        signal.signal(number, before)
    _until_gone(folder, lambda: None)


def broadcast_rows_make_a_task_each_and_a_caller_that_stops_early_leaves_none(session: Any, folder: Path) -> None:
    """Rows instead of numbers: the first arrives while the second stands still."""
    body = _second_stands_still(folder)

    def of_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return body(
            pa.RecordBatch.from_arrays([pa.array([int(row) for row in batch.column(0).to_pylist()])], ["id"])
            for batch in batches
        )

    results = stream_results(session, ["0", "1"], of_rows)
    assert next(results) == "0"
    _until_gone(folder, results.close)  # type: ignore[attr-defined]  # it is a generator


def slots_are_as_many_as_partitions_of_a_plain_range(session: Any, _folder: Path) -> None:
    """Spark divides a range by the cores that it has."""
    from pyspark.sql.functions import spark_partition_id

    assert count_slots(session) == session.range(1_000).select(spark_partition_id()).distinct().count() >= 2


def a_missing_module_is_named_first(session: Any, _folder: Path) -> None:
    """A fault of the executors, charged to no object."""

    def work(_number: int) -> str:
        import no_such_module  # type: ignore[import-not-found]

        return str(no_such_module)

    with pytest.raises(Exception, match="no_such_module") as caught:
        list(stream_results(session, 2, _as_each_task(work)))
    error = translated(caught.value, lambda: "")
    assert isinstance(error, EngineUnavailable)
    assert str(error).startswith("No module named 'no_such_module' on an executor of Spark: install ")


def values_in_what_a_task_raises_are_not_told(session: Any, _folder: Path) -> None:
    """The sentence begins with the type of the error."""

    def work(_number: int) -> str:
        raise ValueError("a secret\nTraceback (most recent call last):\nModuleNotFoundError: a value of a line")

    with pytest.raises(Exception, match="a secret") as caught:
        list(stream_results(session, 1, _as_each_task(work)))
    assert str(translated(caught.value, lambda: "")).startswith("ValueError")
    assert "a secret" not in str(translated(caught.value, lambda: ""))


def a_killed_python_is_named_first(session: Any, _folder: Path) -> None:
    """As by the kernel, for memory."""

    def work(_number: int) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    with pytest.raises(Exception, match="exited unexpectedly") as caught:
        list(stream_results(session, 1, _as_each_task(work)))
    assert str(translated(caught.value, lambda: "")).startswith("Python worker exited unexpectedly")


def executors_without_the_kernel_are_named_with_the_reason(session: Any, _folder: Path) -> None:
    """Executors of a local master run the Python of this process."""
    engine = SparkEngine(Lake("lake", "", StoreConfig()), lambda: session)
    why_not = loaded_kernel().why_not
    assert engine.without_kernel() == ({socket.gethostname(): why_not} if why_not else {})


SCENARIOS = (
    results_arrive_while_other_tasks_run,
    equal_results_all_arrive,
    a_caller_that_stops_early_leaves_no_task,
    an_interrupt_leaves_no_task,
    an_interrupt_that_wakes_nobody_leaves_no_task,
    broadcast_rows_make_a_task_each_and_a_caller_that_stops_early_leaves_none,
    slots_are_as_many_as_partitions_of_a_plain_range,
    a_missing_module_is_named_first,
    values_in_what_a_task_raises_are_not_told,
    a_killed_python_is_named_first,
    executors_without_the_kernel_are_named_with_the_reason,
)


def _until_gone(folder: Path, leave: Callable[[], object]) -> None:
    note = folder / "pid"
    until(note.exists, "the second task")
    process = psutil.Process(int(note.read_text()))
    leave()
    until(lambda: not process.is_running(), "the end of the second task")
    note.unlink()


def main(master: str, folder: Path) -> None:
    """Plays all scenarios on a classic master."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    for scenario in SCENARIOS:
        place = folder / scenario.__name__
        place.mkdir()
        print(f"{time.strftime('%H:%M:%S')} {scenario.__name__}", flush=True)
        scenario(session, place)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
