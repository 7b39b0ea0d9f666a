"""Runs kernels as tasks of one Spark job, over Spark Connect or classic Spark alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from prism_assets.domain.errors import PrismError
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task, from_json
from prism_assets.domain.work.write import WriteTask
from prism_assets.engine.packing import divide, least_shares
from prism_assets.engine.spark_errors import CHECK_ADDRESS, translated
from prism_assets.engine.worker import encode_share, run_batches, tell_kernel
from prism_assets.objectstore.lake import Lake
from prism_assets.transactions import refuse_inside_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from prism_assets.engine.streaming import Body

    Job = tuple[int | Sequence[str], Body]
    """The tasks of a job, as `stream_results` takes them, and what each runs."""

_MOST_ASKED = 1_000
_Result = TypeVar("_Result")

_CARRIED_BYTES = 32 << 20
"""Above this number of bytes in the functions of all tasks together, shares travel as a broadcast.

A broadcast adds 0.15 core-seconds to a job. A function adds 4.8 core-seconds a GiB: Spark unpacks all shares for every
task and sends them to Python. With 40 shares of 20 kB both cost 2 core-seconds, with 400 shares of 50 kB a function
costs 52 and a broadcast 16.
"""


class SparkEngine:
    """An engine on Spark. The first job creates the session."""

    def __init__(
        self,
        lake: Lake,
        session: Callable[[], SparkSession],
        *,
        task_bytes: int = 16 << 20,
        advice: Callable[[], str] = lambda: CHECK_ADDRESS,
    ) -> None:
        """`advice` returns the hint for the error message when Spark does not answer."""
        self._lake = lake
        self._session = session
        self._task_bytes = task_bytes
        self._advice = advice
        self._slots = 1

    @property
    def slots(self) -> int:
        """The slots that the cluster had at the last job. Executors come and go, so each job asks again."""
        return self._slots

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs tasks of one kernel as one job. Tasks marked `alone` get a Spark task each, the others share evenly."""
        if not tasks:
            return iter(())
        kernel, kind = tasks[0].kernel, cast("type[_Result]", tasks[0].result)

        def job(slots: int) -> Job:
            divided = self._divided(tasks, slots)
            return travel([encode_share(kernel, share, definitions, self._lake) for share in divided])

        return (from_json(kind, text) for text in self._run(job))

    def probe(self) -> None:
        """Runs one empty task with the imports of a kernel."""
        for _ in self._run(lambda _slots: travel([encode_share(WriteTask.kernel, [], {}, self._lake)])):
            pass

    def without_kernel(self) -> dict[str, str]:
        """Returns the hosts that run tasks without the compiled kernel, with the reason of each.

        One job has a task for each slot, at most 1,000. Executors without a free slot are not asked.
        """
        answers = map(json.loads, self._run(lambda slots: (min(slots, _MOST_ASKED), tell_kernel)))
        return {host: why_not for host, why_not in sorted(answers) if why_not}

    def _divided(self, tasks: Sequence[Task[_Result]], slots: int) -> list[list[Task[_Result]]]:
        """Returns the tasks of each Spark task."""
        if tasks[0].alone:
            return [[task] for task in tasks]
        least = least_shares(len(tasks), sum(task.input_bytes for task in tasks), self._task_bytes, slots)
        return divide(tasks, lambda task: task.input_bytes, self._task_bytes, least)

    def _run(self, job: Callable[[int], Job]) -> Iterator[str]:
        """Runs the job for the current number of slots."""
        refuse_inside_transaction("Spark")
        from prism_assets.engine.slots import count_slots  # PySpark takes a second, and most commands need none
        from prism_assets.engine.streaming import stream_results

        with self._translating():
            session = self._session()
            self._slots = count_slots(session)
        tasks, body = job(self._slots)
        with self._translating():
            yield from stream_results(session, tasks, body)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except PrismError:
            raise
        except Exception as error:
            raise translated(error, self._advice) from error


def travel(shares: Sequence[str]) -> Job:
    """Returns tasks and body for `stream_results`. `divide` has sized the shares already, so each is one Spark task.

    Few shares travel inside the function, many as rows that Spark broadcasts.
    """
    if len(shares) * sum(map(len, shares)) > _CARRIED_BYTES:
        return shares, run_batches

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_batches(batches, shares)

    return len(shares), run
