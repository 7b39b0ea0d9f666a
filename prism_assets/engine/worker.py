"""The code inside a Spark task: reads a share of the work as JSON, runs the kernels, returns results as JSON."""

from __future__ import annotations

import json
import socket
import sys
import zipimport
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.tables.definition import Definitions, TableDefinition
from prism_assets.domain.work import Task, from_json, to_json
from prism_assets.engine.allocator import keep_memory
from prism_assets.engine.collector import collect_seldom, settle
from prism_assets.kernels.requirement import check_kernel
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import stores_of

RESULT_SCHEMA = "result string"
_TASKS_AT_ONCE = 2
"""While one task of a share waits for the store, another computes. More tasks would only hold more memory."""


def encode_share(kernel: str, tasks: Sequence[Task[Any]], definitions: Definitions, lake: Lake) -> str:
    """Renders the work of one Spark task as JSON, with only the table definitions it needs."""
    needed = {(task.table_id, task.definition_version) for task in tasks}
    return json.dumps(
        {
            "kernel": kernel,
            "lake": lake.to_json(),
            "definitions": [[*key, definitions[key].for_tasks().to_json()] for key in sorted(needed)],
            "tasks": [to_json(task) for task in tasks],
        }
    )


def run_share(text: str) -> Iterator[str]:
    """Runs one share and yields each result as JSON as soon as it is ready."""
    from prism_assets.kernels.registry import KERNELS  # a probe needs it, too, and has no task

    share = json.loads(text)
    lake, kernel = Lake.from_json(share["lake"]), KERNELS[share["kernel"]]
    definitions = {(table, version): TableDefinition.from_json(body) for table, version, body in share["definitions"]}

    def run(line: str) -> str:
        task = from_json(kernel.task, line)
        table = definitions[task.table_id, task.definition_version]
        return to_json(kernel.run(task, table, stores_of(lake.store), lake))

    with ThreadPoolExecutor(_TASKS_AT_ONCE) as pool:
        yield from pool.map(run, share["tasks"])


def run_batches(batches: Iterator[pa.RecordBatch], shares: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The body of the function given to mapInArrow: shares in, or their numbers among `shares`; a column of results
    out.
    """
    prepare_worker()
    for batch in batches:
        for row in batch.column(0).to_pylist():
            for result in run_share(row if shares is None else shares[row]):
                yield pa.RecordBatch.from_arrays([pa.array([result], pa.string())], ["result"])
    _forget_archives()
    settle()


def tell_kernel(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of a function for mapInArrow that tells host and reason if this worker has no compiled kernel."""
    from prism_assets.kernels.compiled import loaded_kernel

    answer = json.dumps([socket.gethostname(), loaded_kernel().why_not])
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([answer] * batch.num_rows, pa.string())], ["result"])


def prepare_worker() -> None:
    """Adapts memory, garbage collection and threads of this process to kernels.

    Raises ModuleNotFoundError without a required kernel: by this type, Spark's errors are a fault of the surroundings.
    """
    try:
        check_kernel()
    except WrongUse as error:
        raise ModuleNotFoundError(str(error)) from None
    pa.set_cpu_count(1)  # Spark gives a task one core, and the child process of a live worker is one of several
    keep_memory()
    collect_seldom()


def _forget_archives() -> None:
    """Saves the next task of this worker 0.14 s of CPU.

    At the start of each task Spark invalidates Python's import caches. An importer of a zip file then reads the whole
    zip directory again, and pyspark.zip is on the path. A missing importer is created from cached facts instead.
    """
    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[entry]
