"""Merging objects of a day to one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import ClassVar

from prism_assets.domain.files import DataFile, MergedRange
from prism_assets.domain.work import Failure


@dataclass(frozen=True, kw_only=True)
class MergeResult:
    """The merged object that was written, or why not."""

    job_id: int
    upper_bound: int
    written: MergedRange | None = None
    failure: Failure | None = None

    @property
    def task_id(self) -> tuple[int, int]:
        """Its job and the end of its range."""
        return self.job_id, self.upper_bound


@dataclass(frozen=True, kw_only=True)
class MergeTask:
    """One range to write. Inputs stand in the order that breaks ties between rows of equal time.

    Metrics are made of the columns with the ids `metric_columns`. `revision` is that of the output's key. A copy that
    `is_copy` has the types that columns are to have.
    """

    job_id: int
    date: date
    lower_bound: int
    upper_bound: int
    inputs: tuple[DataFile, ...]
    output_key: str
    table_id: int
    definition_version: int
    metric_columns: tuple[int, ...] = ()
    revision: int = 0
    is_copy: bool = False

    kernel: ClassVar[str] = "merge"
    result: ClassVar[type[MergeResult]] = MergeResult
    alone: ClassVar[bool] = True

    @property
    def task_id(self) -> tuple[int, int]:
        """Its job and the end of its range."""
        return self.job_id, self.upper_bound

    @property
    def input_bytes(self) -> int:
        """Those of all inputs."""
        return sum(entry.content_length for entry in self.inputs)

    def failed(self, failure: Failure) -> MergeResult:
        """Nothing was written."""
        return MergeResult(job_id=self.job_id, upper_bound=self.upper_bound, failure=failure)
