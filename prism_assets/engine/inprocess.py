"""Runs kernels in this process, one after the other: for tests and small installations without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prism_assets.domain.errors import EngineFailed
from prism_assets.domain.work import ConvertResult, ConvertTask, MergeResult, MergeTask, RepairResult, RepairTask
from prism_assets.engine.base import Definitions
from prism_assets.kernels.convert import convert_object
from prism_assets.kernels.merge import merge_range
from prism_assets.kernels.repair import repair_object
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores


class InProcessEngine:
    """An engine without Spark."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._stores = Stores(lake.store)

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        """Converts staging objects in the order given."""
        for task in tasks:
            table = definitions[task.table_id, task.definition_version]
            with _out_of_memory_is_death():
                result = convert_object(task, table, self._stores, bucket=self._lake.bucket, prefix=self._lake.prefix)
            yield result

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        """Looks at small objects in the order given, and repairs them."""
        for task in tasks:
            table = definitions[task.table_id, task.definition_version]
            with _out_of_memory_is_death():
                result = repair_object(task, table, self._stores, bucket=self._lake.bucket, prefix=self._lake.prefix)
            yield result

    def probe(self) -> None:
        """Does nothing: where this runs, kernels run."""

    def merge(self, tasks: Sequence[MergeTask], definitions: Definitions) -> Iterator[MergeResult]:
        """Writes merged objects in the order given."""
        for task in tasks:
            table = definitions[task.table_id, task.definition_version]
            with _out_of_memory_is_death():
                result = merge_range(task, table, self._stores, bucket=self._lake.bucket)
            yield result


@contextmanager
def _out_of_memory_is_death() -> Iterator[None]:
    """What kills a worker of Spark ends the job here, too, so that the work is divided and the process goes on."""
    try:
        yield
    except MemoryError as error:
        raise EngineFailed("there was not enough memory for it") from error
