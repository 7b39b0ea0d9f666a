"""Looking through objects and quarantined lines for rows to be erased, and writing them again without these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.files import DataFile
from prism_assets.domain.work import Failure
from prism_assets.domain.work.convert import OtherDefinition, QuarantineCount, SourceTask
from prism_assets.domain.work.repair import RepairTask


@dataclass(frozen=True, kw_only=True)
class RewriteResult:
    """What was found in one object, and what was written in its place.

    `rows` were looked at, and `matching` of them, with the sum `erased_fingerprint`, match; of `undecided` ones it
    cannot be computed. `row_groups_read` of the object were read for that. `written` is None where nothing was.
    """

    number: int
    rows: int = 0
    matching: int = 0
    undecided: int = 0
    erased_fingerprint: int = 0
    row_groups_read: int = 0
    written: DataFile | None = None
    failure: Failure | None = None

    @property
    def task_id(self) -> int:
        """That of its task."""
        return self.number


@dataclass(frozen=True, kw_only=True)
class RewriteTask:
    """One object to look through, and to write again under `output_key` without the rows that `erasures` match.

    Without a key nothing is written; `object_type` is the tag of what is. An object that is not recorded has a negative
    `row_count` in `file`; of others the rows must be the recorded ones. Where all rows match, an object without any is
    written, unless the task `skips_empty`. An object that is not as recorded is made again in memory by `remade_from`,
    where that is given.
    """

    number: int
    file: DataFile
    erasures: tuple[ErasureRule, ...]
    table_id: int
    definition_version: int
    output_key: str | None = None
    object_type: str = "merged"
    metric_columns: tuple[int, ...] = ()
    skips_empty: bool = False
    remade_from: RepairTask | None = None

    kernel: ClassVar[str] = "rewrite"
    result: ClassVar[type[RewriteResult]] = RewriteResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> int:
        """A number that no other task of the job has."""
        return self.number

    @property
    def input_bytes(self) -> int:
        """Those of the object, if all of it must be read."""
        return self.file.content_length

    def failed(self, failure: Failure) -> RewriteResult:
        """Nothing was found out."""
        return RewriteResult(number=self.number, failure=failure)


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
