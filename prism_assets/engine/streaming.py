"""Runs one Spark job in a thread and yields results while its tasks run, on classic masters and on Spark Connect."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession  # of classic masters: that of Spark Connect is none of this class
from pyspark.util import InheritableThread

from prism_assets.engine.worker import RESULT_SCHEMA

if TYPE_CHECKING:
    from pyspark import SparkContext
Body = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function for mapInArrow: task numbers or rows in, one column of results out."""

_WAIT_SECONDS = 1.0
_CANCEL_AGAIN_SECONDS = 0.2
_INLINE_BYTES = 96 << 20
"""Rows up to this size travel in the plan; a message of Spark Connect takes 128 MiB. A server keeps larger ones, as
cached artifacts, until the session ends, which may be a day.
"""


def stream_results(session: SparkSession, tasks: int | Sequence[str], body: Body) -> Iterator[str]:
    """Runs `body` as one Spark job. Yields the results of each task when the task ends.

    `tasks` are the rows of the tasks, one each, or a number of tasks; then a row holds the number of its task.

    The driver holds the results of at most one job, on a classic master twice. `spark.driver.maxResultSize` (1 GiB)
    limits them: above it Spark ends the job. A result takes about a kilobyte. A caller who closes the iterator, or is
    interrupted in it, cancels the job; the call returns when Spark has given the job up.

    Spark Connect: `toLocalIterator` is one job, and its rows come in the order of the tasks.

    Classic masters: `toLocalIterator` runs a job for each task, one after another, or two at a time with
    `prefetchPartitions`. `collect` is one job and returns at its end. Therefore tasks also add their results to an
    accumulator, and Spark brings those to the driver at the end of each task, in any order. The rows from `collect`
    stay authoritative: if Spark loses an accumulator update, its result arrives late and is not lost.

    Alternatives, measured with two workers of one core: one job a task from a pool of threads takes 0.2 core-seconds of
    the driver per task, against 0.04. The stream of Arrow batches below `toPandas` buffers 8 KiB of results, and a job
    of merges does not fill the buffer before its end.
    """
    job = _Job(session, tasks, body)
    thread = InheritableThread(target=job.run, session=session, name="prism-spark-job", daemon=True)
    thread.start()
    try:
        while not isinstance(arrived := job.next_arrival(), _End):
            yield arrived
        if arrived.error is not None:
            raise arrived.error
    finally:
        _leave(job, thread)


@dataclass(frozen=True)
class _End:
    """The last arrival of a job."""

    error: BaseException | None = None


@dataclass
class _Job:
    session: Any
    tasks: int | Sequence[str]
    body: Body
    tag: str = field(default_factory=lambda: f"prism-{uuid.uuid4()}")
    arrivals: SimpleQueue[str | _End] = field(default_factory=SimpleQueue)
    has_ended: bool = False

    def run(self) -> None:
        """Fills `arrivals`. Runs in a thread of its own, because Spark's tags apply to all jobs of a thread."""
        end = _End()
        try:
            if isinstance(self.session, SparkSession):
                self._run_on_classic(self.session.sparkContext)
            else:
                self._run_on_connect()
        except BaseException as error:
            end = _End(error)
        self.has_ended = True
        self.arrivals.put(end)

    def next_arrival(self) -> str | _End:
        """Waits for the next result, or for the end.

        A signal that comes just before a wait begins, or that another thread receives, interrupts no wait. Python
        raises its error after the wait, so no wait is long.
        """
        while True:
            with suppress(Empty):
                return self.arrivals.get(timeout=_WAIT_SECONDS)

    def cancel(self) -> None:
        """Cancels the job if Spark has started it. On a classic session the tags belong to the SparkContext."""
        if isinstance(self.session, SparkSession):
            self.session.sparkContext.cancelJobsWithTag(self.tag)
        else:
            self.session.interruptTag(self.tag)

    def _run_on_connect(self) -> None:
        self.session.addTag(self.tag)
        for row in self._frame(self.body).toLocalIterator():
            self.arrivals.put(row["result"])

    def _run_on_classic(self, context: SparkContext) -> None:
        context.addJobTag(self.tag)
        body, tag, accumulator = self.body, self.tag, _accumulator(context)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in body(batches):
                accumulator.add([(tag, result) for result in batch.column(0).to_pylist()])
                yield batch

        early = _INBOXES.open(tag, self.arrivals)
        try:
            rows = self._frame(run).collect()
        finally:
            _INBOXES.close(tag)
        for row in rows:
            if row["result"] not in early:
                self.arrivals.put(row["result"])

    def _frame(self, body: Body) -> Any:
        """Returns a DataFrame with one partition a task, and one row a partition."""
        if isinstance(self.tasks, int):
            return _numbers(self.session, self.tasks).mapInArrow(body, RESULT_SCHEMA)
        return _rows(self.session, self.tasks).mapInArrow(body, RESULT_SCHEMA)


def _numbers(session: Any, count: int) -> Any:
    return session.range(0, count, 1, count)


def _rows(session: Any, rows: Sequence[str]) -> Any:
    """Returns one row a partition. Spark broadcasts all rows to each executor once, and a task takes its own there.

    The rows alone would make as many partitions as the cluster has cores, and one a partition takes a shuffle. A lost
    executor would take its part of the shuffle along; a broadcast comes from the driver again.
    """
    from pyspark.sql.functions import broadcast

    if not isinstance(session, SparkSession):
        session.conf.set("spark.sql.session.localRelationCacheThreshold", str(_INLINE_BYTES))
    listed = pa.table({"id": pa.array(range(len(rows)), pa.int64()), "row": pa.array(rows, pa.string())})
    return _numbers(session, len(rows)).join(broadcast(session.createDataFrame(listed)), "id").select("row")


def _leave(job: _Job, thread: InheritableThread) -> None:
    """Cancels a job whose caller stopped early. Does nothing after the last result.

    Spark cannot cancel a job before it starts, so the call repeats until the thread ends. If Spark does not answer the
    call, the thread is abandoned: Spark is unreachable and sends no further results.
    """
    with suppress(Exception):
        while not job.has_ended:
            job.cancel()
            thread.join(_CANCEL_AGAIN_SECONDS)


class _Inboxes:
    """The accumulator's value in the driver. Passes results on to waiting jobs and keeps none."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[SimpleQueue[str | _End], set[str]]] = {}

    def open(self, tag: str, arrivals: SimpleQueue[str | _End]) -> set[str]:
        """Starts to pass on results of a job. The returned set fills with the results passed on."""
        early: set[str] = set()
        self._open[tag] = arrivals, early
        return early

    def close(self, tag: str) -> None:
        del self._open[tag]

    def extend(self, results: Sequence[tuple[str, str]]) -> None:
        """Takes the results added by one task. Spark calls this in its own thread, for abandoned jobs, too."""
        for tag, result in results:
            # Tasks of a cancelled job may end after the job has closed its inbox.
            if (inbox := self._open.get(tag)) is not None:
                arrivals, early = inbox
                early.add(result)
                arrivals.put(result)


_INBOXES = _Inboxes()


class _Results(AccumulatorParam[Any]):
    """Gathers the results of a task in a list, and sends them to `_INBOXES` in the driver."""

    def zero(self, _value: Any) -> list[tuple[str, str]]:
        return []

    def addInPlace(self, value: Any, added: Sequence[tuple[str, str]]) -> Any:  # noqa: N802 - as Spark calls it
        value.extend(added)
        return value


@lru_cache(maxsize=1)
def _accumulator(context: SparkContext) -> Accumulator[Any]:
    """Returns the one accumulator for all jobs of a context. PySpark keeps every accumulator until the process ends."""
    return context.accumulator(_INBOXES, _Results())
