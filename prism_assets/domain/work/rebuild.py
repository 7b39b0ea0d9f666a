"""Rebuilding the rows of a staging object on one day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import ClassVar

from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import OtherDefinition, QuarantineCount, SourceTask, ValueErrors


@dataclass(frozen=True, kw_only=True)
class DayOfObject:
    """The recorded number of rows of a staging object on one day, and their definition."""

    date: date
    definition_version: int
    row_count: int


@dataclass(frozen=True, kw_only=True)
class RebuildResult:
    """The rows of a staging object on one day under another definition, and the end of its other lines."""

    staging_object_id: int
    lines_in: int = 0
    rows_out: int = 0
    lines_filtered: int = 0
    lines_erased: int = 0
    lines_elsewhere: int = 0
    small: SmallObject | None = None
    """The object of the day; None if the staging object has no row on that day, and had none before."""
    quarantined: tuple[QuarantineCount, ...] = ()
    quarantine_key: str | None = None
    value_errors: tuple[ValueErrors, ...] = ()
    other_dates: tuple[date, ...] = ()
    """Days of lines quarantined until these days are rebuilt."""
    is_missing: bool = False
    """Whether the staging object is gone, or another one lies under its key. Then nothing was read."""
    failure: Failure | None = None

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id

    @property
    def lines_quarantined(self) -> int:
        """Lines set aside."""
        return sum(count.line_count for count in self.quarantined)


@dataclass(frozen=True, kw_only=True)
class RebuildTask(SourceTask):
    """The rows of one staging object on one day, made again under another definition.

    `source` is the staging object under the new definition, with the number of the rebuild.
    """

    date: date
    recorded: tuple[DayOfObject, ...]
    """All days with rows of the staging object. The day to rebuild may be none of them."""
    definitions: tuple[OtherDefinition, ...]
    """The definitions of the recorded days, without the current one."""
    lines_in: int
    """Lines that the last conversion read."""
    quarantine_key: str | None
    """The quarantined lines of the last conversion; None once they are deleted."""

    kernel: ClassVar[str] = "rebuild"
    result: ClassVar[type[RebuildResult]] = RebuildResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.source.staging_object_id

    @property
    def input_bytes(self) -> int:
        """Bytes of the staging object, once for each definition."""
        return self.source.content_length * (1 + len(self.definitions))

    def failed(self, failure: Failure) -> RebuildResult:
        """Returns a result without an object."""
        return RebuildResult(staging_object_id=self.source.staging_object_id, failure=failure)
