"""What a process of `scripts/bench join` does: it runs tasks of folds as Spark's Python workers run them."""

from __future__ import annotations

import importlib
import resource

import pyarrow as pa

from prism_assets.engine.worker import run_batches


def import_kernels() -> None:
    """Makes a process ready, so that no round pays for imports."""
    importlib.import_module("prism_assets.kernels.registry")


def run_task(share: str) -> tuple[str, int]:
    """Runs what a Spark task runs; returns its result, and the most memory that this process ever had."""
    numbers = pa.RecordBatch.from_arrays([pa.array([0])], ["number"])
    (batch,) = run_batches(iter([numbers]), [share])
    return batch.column(0)[0].as_py(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
