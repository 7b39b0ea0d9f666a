"""Runs kernels as tasks of one Spark job, over Spark Connect or classic Spark alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from prism_assets.domain.errors import PrismError
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task, from_json
from prism_assets.domain.work.write import WriteTask
from prism_assets.engine.packing import divide
from prism_assets.engine.spark_errors import CHECK_ADDRESS, translated
from prism_assets.engine.worker import encode_share, run_batches
from prism_assets.objectstore.lake import Lake
from prism_assets.transactions import refuse_inside_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")

_LEAST_SHARES = 4
"""Small jobs, too, use a few cores, and the lengths of their shares even out."""


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

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs tasks of one kernel as one job. Tasks marked `alone` get a Spark task each, the others share evenly."""
        if not tasks:
            return iter(())
        shares = [[task] for task in tasks]
        if not tasks[0].alone:
            shares = divide(tasks, lambda task: task.input_bytes, self._task_bytes, _LEAST_SHARES)
        encoded = [encode_share(tasks[0].kernel, share, definitions, self._lake) for share in shares]
        kind: type[_Result] = tasks[0].result
        return (from_json(kind, text) for text in self._run(encoded))

    def probe(self) -> None:
        """Runs one empty task with the imports of a kernel."""
        for _ in self._run([encode_share(WriteTask.kernel, [], {}, self._lake)]):
            pass

    def _run(self, shares: Sequence[str]) -> Iterator[str]:
        if not shares:
            return
        refuse_inside_transaction("Spark")
        from prism_assets.engine.streaming import stream_results  # PySpark takes a second, and most commands need none

        try:
            yield from stream_results(self._session(), len(shares), _body(shares))
        except PrismError:
            raise
        except Exception as error:
            raise translated(error, self._advice) from error


def _body(shares: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function for mapInArrow. `divide` has sized the shares already, so each share is one Spark task.

    The shares travel inside the function. Rows of a DataFrame would need a shuffle to get one row a partition, and the
    shuffle takes longer than the rest of a small job.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_batches(batches, shares)

    return run
