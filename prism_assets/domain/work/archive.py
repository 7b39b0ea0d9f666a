"""Writing rows that leave PostgreSQL to the lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prism_assets.domain.work import Failure


@dataclass(frozen=True, kw_only=True)
class ArchiveResult:
    """What became of one task: the object is written, but for a failure."""

    key: str
    failure: Failure | None = None

    @property
    def task_id(self) -> str:
        """That of its task."""
        return self.key


@dataclass(frozen=True, kw_only=True)
class ArchiveTask:
    """Rows of one table of PostgreSQL, each as JSON, to be written to one Parquet object.

    `columns` are names and types, as PostgreSQL calls these, in order.
    """

    key: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[str, ...]
    table_id: int
    definition_version: int

    kernel: ClassVar[str] = "archive"
    result: ClassVar[type[ArchiveResult]] = ArchiveResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> str:
        """The key: no other task writes it."""
        return self.key

    @property
    def input_bytes(self) -> int:
        """Nothing is read."""
        return 0

    def failed(self, failure: Failure) -> ArchiveResult:
        """Nothing was written."""
        return ArchiveResult(key=self.key, failure=failure)
