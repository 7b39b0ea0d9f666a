"""Searching quarantined lines for erased rows, and writing them again without these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import OtherDefinition, QuarantineCount, SourceTask


@dataclass(frozen=True, kw_only=True)
class CleanResult:
    """What was found among quarantined lines, and what is left of them: `left` by reason.

    Lines that match are gone from what was written, and `withheld` ones, which nobody can judge, have no text any more.
    `key` is None where no line is left, or nothing was written.
    """

    staging_object_id: int
    lines: int = 0
    erased: int = 0
    withheld: int = 0
    left: tuple[QuarantineCount, ...] = ()
    key: str | None = None
    failure: Failure | None = None

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id

    @property
    def changed(self) -> bool:
        """Whether anything had to go."""
        return bool(self.erased or self.withheld)


@dataclass(frozen=True, kw_only=True)
class CleanTask(SourceTask):
    """The quarantined lines of one staging object, to be written again under `output_key` as far as they may stay.

    `source` is the staging object as it was converted, and `present` the definition in force, where that is another:
    lines are read under both. Without a key nothing is written.
    """

    key: str
    present: OtherDefinition | None = None
    output_key: str | None = None

    kernel: ClassVar[str] = "clean"
    result: ClassVar[type[CleanResult]] = CleanResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.source.staging_object_id

    def failed(self, failure: Failure) -> CleanResult:
        """Nothing was found out."""
        return CleanResult(staging_object_id=self.source.staging_object_id, failure=failure)
