"""The kernels by name. A new kernel is a task class in `domain/`, a function, and its line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prism_assets.domain.records.folding import FoldTask
from prism_assets.domain.records.rebuild import RecordRebuildTask
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work import Result, Task
from prism_assets.domain.work.archive import ArchiveTask
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.domain.work.rebuild import RebuildTask
from prism_assets.domain.work.redact import RedactTask
from prism_assets.domain.work.repair import RepairTask
from prism_assets.domain.work.write import WriteTask
from prism_assets.kernels.archive import write_archive
from prism_assets.kernels.convert import convert_object
from prism_assets.kernels.rebuild import rebuild_object
from prism_assets.kernels.records.fold import fold_buckets
from prism_assets.kernels.records.rebuilding import rebuild_records
from prism_assets.kernels.redact import redact_lines
from prism_assets.kernels.repair import repair_object
from prism_assets.kernels.write import write_object
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

_Task = TypeVar("_Task", bound=Task[Any])


@dataclass(frozen=True)
class Kernel(Generic[_Task]):
    """A function for Spark tasks, and the class of its tasks.

    The function raises nothing for one bad object: the failure is a field of the result. It passes MemoryError on.
    """

    task: type[_Task]
    run: Callable[[_Task, TableDefinition, Stores, Lake], Result]


_ALL: tuple[Kernel[Any], ...] = (
    Kernel(ConvertTask, convert_object),
    Kernel(RepairTask, repair_object),
    Kernel(RebuildTask, rebuild_object),
    Kernel(WriteTask, write_object),
    Kernel(RedactTask, redact_lines),
    Kernel(FoldTask, fold_buckets),
    Kernel(RecordRebuildTask, rebuild_records),
    Kernel(ArchiveTask, write_archive),
)
KERNELS: Mapping[str, Kernel[Any]] = {kernel.task.kernel: kernel for kernel in _ALL}
