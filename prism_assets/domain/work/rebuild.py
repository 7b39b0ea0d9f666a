"""Making the rows of a staging object on one day again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import ClassVar

from prism_assets.domain.files import SmallObject
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import OtherDefinition, QuarantineCount, SourceTask, ValueErrors


@dataclass(frozen=True, kw_only=True)
class DayOfObject:
    """What is recorded of the rows of a staging object on one day: how many, and under which definition."""

    date: date
    definition_version: int
    row_count: int


@dataclass(frozen=True, kw_only=True)
class RebuildResult:
    """What a staging object gives for one day now, and what became of its other lines.

    `small` is the object of the day; None if the day has no row of it, and had none. `other_dates` are the days of the
    lines that are set aside for rebuilds of these. `is_missing` if the staging object is gone, or another one lies
    under its key: then nothing was read.
    """

    staging_object_id: int
    lines_in: int = 0
    rows_out: int = 0
    lines_filtered: int = 0
    lines_erased: int = 0
    small: SmallObject | None = None
    quarantined: tuple[QuarantineCount, ...] = ()
    quarantine_key: str | None = None
    value_errors: tuple[ValueErrors, ...] = ()
    other_dates: tuple[date, ...] = ()
    is_missing: bool = False
    failure: Failure | None = None

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id

    @property
    def lines_quarantined(self) -> int:
        """Lines set aside, counted by themselves."""
        return sum(count.line_count for count in self.quarantined)


@dataclass(frozen=True, kw_only=True)
class RebuildTask(SourceTask):
    """The rows of one staging object on one day, made again under another definition.

    `source` is the staging object as it is converted now: its generation is the number of the rebuild. `recorded` are
    the days that it has rows of, the one that is rebuilt among them or not; `definitions` those that they were made
    under, but for the one in force. `lines_in` is what was read before; what of it is set aside lies under
    `quarantine_key`, as long as it is kept.
    """

    date: date
    recorded: tuple[DayOfObject, ...]
    definitions: tuple[OtherDefinition, ...]
    lines_in: int
    quarantine_key: str | None

    kernel: ClassVar[str] = "rebuild"
    result: ClassVar[type[RebuildResult]] = RebuildResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.source.staging_object_id

    @property
    def input_bytes(self) -> int:
        """Those of the staging object, as often as it is read."""
        return self.source.content_length * (1 + len(self.definitions))

    def failed(self, failure: Failure) -> RebuildResult:
        """Nothing was made."""
        return RebuildResult(staging_object_id=self.source.staging_object_id, failure=failure)
