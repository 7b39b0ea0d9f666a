"""Repairing the small objects of one staging object."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import ClassVar

from prism_assets.domain.files import SmallObject
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import SourceTask


@dataclass(frozen=True, kw_only=True)
class RepairedObject:
    """What was found under the key of one recorded object, and what lies there now; the length is in bytes.

    `fault` is None for an object that holds the recorded rows, else one sentence. `content_length` is None as long
    as the rows are not there.
    """

    date: date
    key: str
    fault: str | None
    content_length: int | None


@dataclass(frozen=True, kw_only=True)
class RepairResult:
    """What became of one task. With a failure, objects may have been found and not repaired."""

    staging_object_id: int
    generation: int = 0
    objects: tuple[RepairedObject, ...] = ()
    failure: Failure | None = None

    @property
    def task_id(self) -> tuple[int, int]:
        """The staging object, and which start or rebuild of it."""
        return self.staging_object_id, self.generation


@dataclass(frozen=True, kw_only=True)
class RepairTask(SourceTask):
    """Small objects of one start or rebuild of a staging object that may be missing or damaged.

    `source` is the staging object as it was converted, `recorded` what must lie under their keys again, row by row.
    With `look_only` nothing is written.
    """

    recorded: tuple[SmallObject, ...]
    look_only: bool = False

    kernel: ClassVar[str] = "repair"
    result: ClassVar[type[RepairResult]] = RepairResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> tuple[int, int]:
        """The staging object that all of `recorded` come from, and which start or rebuild of it."""
        return self.source.staging_object_id, self.source.generation

    def failed(self, failure: Failure) -> RepairResult:
        """Nothing was found out."""
        number, generation = self.task_id
        return RepairResult(staging_object_id=number, generation=generation, failure=failure)
