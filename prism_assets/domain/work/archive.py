"""Archiving rows of PostgreSQL in the lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prism_assets.domain.work import Failure


@dataclass(frozen=True, kw_only=True)
class ArchiveResult:
    """The end of one task. Without a failure the object is written."""

    key: str
    failure: Failure | None = None

    @property
    def task_id(self) -> str:
        """The key."""
        return self.key


@dataclass(frozen=True, kw_only=True)
class ArchiveTask:
    """Rows of one table of PostgreSQL, to be written as one Parquet object."""

    key: str
    columns: tuple[tuple[str, str], ...]
    """Name and PostgreSQL type of each column."""
    rows: tuple[str, ...]
    """Each row as JSON."""
    table_id: int
    definition_version: int

    kernel: ClassVar[str] = "archive"
    result: ClassVar[type[ArchiveResult]] = ArchiveResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> str:
        """The key, because no other task writes it."""
        return self.key

    @property
    def input_bytes(self) -> int:
        """0, because the task reads nothing."""
        return 0

    def failed(self, failure: Failure) -> ArchiveResult:
        """The result of a task without an object."""
        return ArchiveResult(key=self.key, failure=failure)
