"""Sizes batches by the number of tasks that the engine runs at the same time."""

from __future__ import annotations

from dataclasses import dataclass

_TASKS_PER_SLOT = 4
"""Tasks of one batch for each slot. A slot that is done early takes work from the others, and the last tasks of a batch
keep the others idle for about an eighth of its time."""
_OBJECTS_PER_TASK = 16


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """How much work one Spark job takes."""

    objects: int
    """Staging objects."""
    bytes: int
    """Bytes of staging objects."""
    merges: int
    """Merge jobs."""


LEAST = BatchSize(objects=1_024, bytes=1 << 30, merges=64)
"""The size up to 16 slots. Smaller batches would pay the fixed price of a Spark job more often."""


def batch_size(slots: int, task_bytes: int, most: BatchSize) -> BatchSize:
    """Returns the size for an engine with so many slots: four tasks a slot, between `LEAST` and `most`.

    `most` comes from the settings and wins over `LEAST`.
    """
    tasks = slots * _TASKS_PER_SLOT
    return BatchSize(
        objects=min(most.objects, max(LEAST.objects, tasks * _OBJECTS_PER_TASK)),
        bytes=min(most.bytes, max(LEAST.bytes, tasks * task_bytes)),
        merges=min(most.merges, max(LEAST.merges, tasks)),
    )
