"""Runs kernels in this process, one after the other: for tests and small installations without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

from prism_assets.domain.errors import EngineFailed
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task
from prism_assets.kernels.registry import KERNELS
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import stores_of

_Result = TypeVar("_Result")


class InProcessEngine:
    """An engine without Spark."""

    slots = 1
    """Tasks run one after the other."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._stores = stores_of(lake.store)

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs tasks in the order given.

        Running out of memory raises EngineFailed, as a killed Spark worker does. The stage then divides the tasks, and
        the process survives.
        """
        for task in tasks:
            table = definitions[task.table_id, task.definition_version]
            try:
                result = KERNELS[task.kernel].run(task, table, self._stores, self._lake)
            except MemoryError as error:
                raise EngineFailed("there was not enough memory for it") from error
            yield cast(_Result, result)

    def probe(self) -> None:
        """Does nothing: kernels run in this process."""
