"""Repairing the small objects of one staging object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import ClassVar

from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import SourceTask


@dataclass(frozen=True, kw_only=True)
class RepairedObject:
    """One recorded object: the fault, and the key and length after the repair."""

    date: date
    key: str
    """The recorded key, or the new one of the task if the object was written there."""
    fault: str | None
    """One sentence; None for an object with the recorded rows."""
    content_length: int | None
    """In bytes; None as long as the object lacks the recorded rows."""


@dataclass(frozen=True, kw_only=True)
class RepairResult:
    """The end of one task. With a failure, some of `objects` may be faulty and not repaired."""

    staging_object_id: int
    generation: int = 0
    definition_version: int = 0
    objects: tuple[RepairedObject, ...] = ()
    failure: Failure | None = None

    @property
    def task_id(self) -> tuple[int, int, int]:
        """The staging object, the number of the start, and the definition of the rows."""
        return self.staging_object_id, self.generation, self.definition_version


@dataclass(frozen=True, kw_only=True)
class RepairTask(SourceTask):
    """Checks the small objects of one start of a staging object under one definition, and repairs faulty ones.

    `source` is the staging object of the conversion.
    """

    recorded: tuple[SmallObject, ...]
    """The recorded objects. After the repair all are in the store, with the same rows."""
    new_keys: Mapping[date, str] = field(default_factory=dict)
    """New keys by date. Objects without one keep their keys, because readers list the folder."""
    look_only: bool = False
    """Whether nothing is written."""

    kernel: ClassVar[str] = "repair"
    result: ClassVar[type[RepairResult]] = RepairResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> tuple[int, int, int]:
        """The staging object of all `recorded` objects, the number of the start, and the definition of the rows."""
        return self.source.staging_object_id, self.source.generation, self.source.definition_version

    def failed(self, failure: Failure) -> RepairResult:
        """Nothing was found out."""
        number, generation, version = self.task_id
        return RepairResult(
            staging_object_id=number, generation=generation, definition_version=version, failure=failure
        )
