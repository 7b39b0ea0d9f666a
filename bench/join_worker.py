"""A worker process of `scripts/bench join`. It runs fold tasks as Spark's Python workers do."""

from __future__ import annotations

import importlib
import resource

import pyarrow as pa

from prism_assets.engine.worker import run_batches


def import_kernels() -> None:
    """Imports the kernels, so that no round pays for it."""
    importlib.import_module("prism_assets.kernels.registry")


def run_task(share: str) -> tuple[str, int]:
    """Runs one Spark task's work. Returns the result, and the peak memory of this process."""
    numbers = pa.RecordBatch.from_arrays([pa.array([0])], ["number"])
    (batch,) = run_batches(iter([numbers]), [share])
    return batch.column(0)[0].as_py(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
