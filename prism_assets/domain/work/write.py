"""Writing sorted objects to one: merges, renames, widenings, adoptions, erasures of rows, merges of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.work import Failure, UnreadObject
from prism_assets.domain.work.repair import RepairTask


@dataclass(frozen=True, kw_only=True)
class WriteResult:
    """The object written by a task, or the reason for none. All counts are 0 for tasks without erasures."""

    number: int
    written: DataFile | None = None
    rows: int = 0
    """Rows of all inputs."""
    matching: int = 0
    """Rows that match; the written object does not hold them."""
    matching_last: int = 0
    """Rows that match the last erasure of the task."""
    undecided: int = 0
    """Rows for which a predicate has no result."""
    row_groups_read: int = 0
    """Row groups that the search had to read, because their statistics did not exclude them."""
    unread: tuple[UnreadObject, ...] = ()
    """Inputs that are missing or not as recorded. If there are any, `failure` is set, too."""
    failure: Failure | None = None

    @property
    def task_id(self) -> int:
        """The number of the task."""
        return self.number


@dataclass(frozen=True, kw_only=True)
class WriteTask:
    """Sorted objects to write as one object, under one definition, without rows that match erasures.

    A task with erasures first searches its inputs. It writes nothing if no row matches.
    """

    number: int
    """Unique among the tasks of a job."""
    inputs: tuple[DataFile, ...]
    """Rows with equal sort keys keep the order of their inputs. For a search a negative `row_count` stands for an
    unknown number of rows."""
    output_key: str | None
    """None for a search: rows are counted, and nothing is written."""
    table_id: int
    definition_version: int
    object_type: str = "merged"
    """The tag of the object in the store."""
    metric_columns: tuple[int, ...] = ()
    """The ids of the columns with metrics."""
    erasures: tuple[ErasureRule, ...] = ()
    is_copy: bool = False
    """Whether columns get the types of a widening before readers see these."""
    skips_empty: bool = False
    """Whether nothing is written where all rows match. Otherwise an object without rows is written."""
    remade_from: RepairTask | None = None
    """Makes a single missing or damaged input again in memory."""

    kernel: ClassVar[str] = "write"
    result: ClassVar[type[WriteResult]] = WriteResult

    @property
    def alone(self) -> bool:
        """True for merges. Tasks with erasures read little of most objects, and share Spark tasks."""
        return not self.erasures

    @property
    def task_id(self) -> int:
        """The number."""
        return self.number

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(entry.content_length for entry in self.inputs)

    def failed(self, failure: Failure) -> WriteResult:
        """The result of a task that wrote nothing."""
        return WriteResult(number=self.number, failure=failure)
