"""Taking erased lines out of the quarantined lines of a staging object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import OtherDefinition, QuarantineCount, SourceTask


@dataclass(frozen=True, kw_only=True)
class RedactResult:
    """The removed lines, and the remaining ones."""

    staging_object_id: int
    lines: int = 0
    erased: int = 0
    """Lines that match; the written object does not hold them."""
    withheld: int = 0
    """Lines for which the predicate has no result; the written object has them without their text."""
    left: tuple[QuarantineCount, ...] = ()
    """Remaining lines, by reason."""
    key: str | None = None
    """None where no line is left, or nothing was written."""
    failure: Failure | None = None

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id

    @property
    def changed(self) -> bool:
        """Whether a line or the text of one had to go."""
        return bool(self.erased or self.withheld)


@dataclass(frozen=True, kw_only=True)
class RedactTask(SourceTask):
    """The quarantined lines of one staging object, to be written again without erased ones.

    `source` is the staging object as it was converted.
    """

    key: str
    """Where the lines are."""
    present: OtherDefinition | None = None
    """The current definition, if `source` has an earlier one: lines are read under both."""
    output_key: str | None = None
    """None for a search: lines are counted, and nothing is written."""

    kernel: ClassVar[str] = "redact"
    result: ClassVar[type[RedactResult]] = RedactResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.source.staging_object_id

    def failed(self, failure: Failure) -> RedactResult:
        """Returns a result without lines."""
        return RedactResult(staging_object_id=self.source.staging_object_id, failure=failure)
