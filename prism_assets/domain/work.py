"""What stages hand to kernels and what comes back. Plain frozen data: it travels to Spark tasks as JSON.

A kernel does not raise for one bad object: the failure is a field of its result.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import TypeAdapter

from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.files import DataFile, MergedRange, SmallObject

ResultT = TypeVar("ResultT", covariant=True)
_Work = TypeVar("_Work")


class Task(Protocol[ResultT]):
    """Work for the kernel of that name, under one definition of one table, that ends with one result.

    `result` is the class of what comes back. A task that is `alone` fills a Spark task by itself; others share one, as
    many as their `input_bytes` allow.
    """

    kernel: ClassVar[str]
    result: ClassVar[type[Any]]
    alone: ClassVar[bool]

    @property
    def table_id(self) -> int:
        """The table, for its definition."""
        ...

    @property
    def definition_version(self) -> int:
        """The definition to work under."""
        ...

    @property
    def task_id(self) -> Hashable:
        """What its result says, too: which task it answers."""
        ...

    @property
    def input_bytes(self) -> int:
        """Bytes to read."""
        ...

    def failed(self, failure: Failure) -> ResultT:
        """The result that says so and no more."""
        ...


class Result(Protocol):
    """What a task ends with."""

    @property
    def task_id(self) -> Hashable:
        """That of the task it answers."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why it failed, or None."""
        ...


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a task failed. Transient failures are worth another attempt, whoever is to blame.

    `at_source` says that the staging object could not be read, and `of_object` that the store refuses this object for
    what it is, as it does those of an archive; `killed` that a worker died over the task; `occupied` that other rows
    lie under a key it was to write.
    """

    message: str
    transient: bool
    at_source: bool = False
    of_object: bool = False
    killed: bool = False
    occupied: bool = False


@dataclass(frozen=True, kw_only=True)
class QuarantineCount:
    """How many lines of one staging object were set aside for one reason; none where it is only told."""

    reason: str
    line_count: int


@dataclass(frozen=True, kw_only=True)
class ValueErrors:
    """How many values of a column did not fit, or could not be computed.

    Reasons are `unfit`, `out_of_range`, `not_finite`, `too_long`, `cut`, and `value_error`.
    """

    column: str
    reason: str
    count: int


@dataclass(frozen=True, kw_only=True)
class UndefinedField:
    """How many fields of lines had this key, which no column reads, and a value of this kind; the first line is told.

    Kinds are those of `domain.drift.FieldKind`.
    """

    key: str
    kind: str
    count: int
    line: int


@dataclass(frozen=True, kw_only=True)
class SourceVersion:
    """What the store says of the object that lies under a staging object's key now; the length is in bytes."""

    etag: str | None
    content_length: int
    last_modified: datetime | None


@dataclass(frozen=True, kw_only=True)
class ConvertResult:
    """What became of one staging object.

    `lines_in == rows_out + lines_quarantined + lines_filtered + lines_erased` unless it failed; each is counted by
    itself.

    `undefined` are fields of at most 500 keys that no column reads.

    `changed` is the version that was met instead of the one that was registered; nothing of it was read. Erasures of
    the table up to `erasure_id` were respected.
    """

    staging_object_id: int
    lines_in: int = 0
    rows_out: int = 0
    lines_filtered: int = 0
    lines_erased: int = 0
    erasure_id: int = 0
    objects: tuple[SmallObject, ...] = ()
    quarantined: tuple[QuarantineCount, ...] = ()
    quarantine_key: str | None = None
    value_errors: tuple[ValueErrors, ...] = ()
    undefined: tuple[UndefinedField, ...] = ()
    fast_lines: int = 0
    changed: SourceVersion | None = None
    failure: Failure | None = None

    @property
    def lines_quarantined(self) -> int:
        """Lines set aside, counted by themselves."""
        return sum(count.line_count for count in self.quarantined)

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id


@dataclass(frozen=True, kw_only=True)
class ConvertTask:
    """One staging object to convert.

    `received` is when the object was first seen, `sent` when its bucket got it, where that is known: the accepted event
    dates hang on them and on the key (`accepted_days`), so that every attempt decides alike. Rows of `delayed_dates` go
    to the delayed tier, all others to the live tier. `table_id` and `definition_version` name the definition to convert
    under. `generation` is part of the keys that are written: it counts how often the object was begun anew. Metrics are
    made of the columns with the ids `metric_columns`. Rows of days before `retained_from` are too old for the table.
    Changes of a join table are too late by `settle_clock`, the table's when a batch claimed the object first.
    Rows that `erasures` match are left out, of a date that `erased_up_to` names those of erasures up to that id alone.
    """

    staging_object_id: int
    bucket: str
    key: str
    etag: str | None
    content_length: int
    received: datetime
    stream_name: str
    delayed_dates: frozenset[date]
    table_id: int
    definition_version: int
    generation: int = 0
    sent: datetime | None = None
    metric_columns: tuple[int, ...] = ()
    retained_from: date | None = None
    settle_clock: datetime | None = None
    erasures: tuple[ErasureRule, ...] = ()
    erased_up_to: Mapping[date, int] = field(default_factory=dict)

    kernel: ClassVar[str] = "convert"
    result: ClassVar[type[ConvertResult]] = ConvertResult
    alone: ClassVar[bool] = False

    @property
    def erasure_id(self) -> int:
        """The last erasure of the table that it respects."""
        return max((rule.erasure_id for rule in self.erasures), default=0)

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id

    @property
    def input_bytes(self) -> int:
        """Those of the staging object."""
        return self.content_length

    def failed(self, failure: Failure) -> ConvertResult:
        """Nothing was converted."""
        return ConvertResult(staging_object_id=self.staging_object_id, failure=failure)


@dataclass(frozen=True, kw_only=True)
class SourceTask:
    """A task about a staging object, `source`, which says under which definition, and how much is read at the most."""

    source: ConvertTask

    @property
    def table_id(self) -> int:
        """The table, for its definition."""
        return self.source.table_id

    @property
    def definition_version(self) -> int:
        """The definition to read the staging object under."""
        return self.source.definition_version

    @property
    def input_bytes(self) -> int:
        """Those of the staging object."""
        return self.source.content_length


@dataclass(frozen=True, kw_only=True)
class RepairedObject:
    """What was found under the key of one recorded object, and what lies there now; the length is in bytes.

    `fault` is None for an object that holds the recorded rows, else one sentence. `content_length` is None as long
    as the rows are not there.
    """

    date: date
    key: str
    fault: str | None
    content_length: int | None


@dataclass(frozen=True, kw_only=True)
class RepairResult:
    """What became of one task. With a failure, objects may have been found and not repaired."""

    staging_object_id: int
    generation: int = 0
    objects: tuple[RepairedObject, ...] = ()
    failure: Failure | None = None

    @property
    def task_id(self) -> tuple[int, int]:
        """The staging object, and which start or rebuild of it."""
        return self.staging_object_id, self.generation


@dataclass(frozen=True, kw_only=True)
class RepairTask(SourceTask):
    """Small objects of one start or rebuild of a staging object that may be missing or damaged.

    `source` is the staging object as it was converted, `recorded` what must lie under their keys again, row by row.
    With `look_only` nothing is written.
    """

    recorded: tuple[SmallObject, ...]
    look_only: bool = False

    kernel: ClassVar[str] = "repair"
    result: ClassVar[type[RepairResult]] = RepairResult
    alone: ClassVar[bool] = False

    @property
    def task_id(self) -> tuple[int, int]:
        """The staging object that all of `recorded` come from, and which start or rebuild of it."""
        return self.source.staging_object_id, self.source.generation

    def failed(self, failure: Failure) -> RepairResult:
        """Nothing was found out."""
        number, generation = self.task_id
        return RepairResult(staging_object_id=number, generation=generation, failure=failure)


@dataclass(frozen=True, kw_only=True)
class DayOfObject:
    """What is recorded of the rows of a staging object on one day: how many, and under which definition."""

    date: date
    definition_version: int
    row_count: int


@dataclass(frozen=True, kw_only=True)
class RebuildResult:
    """What a staging object gives for one day now, and what became of its other lines.

    `small` is the object of the day; None if the day has no row of it, and had none. `lines_elsewhere` counts lines
    that other days have rows of. `is_missing` if the staging object is gone, or another one lies under its key: then
    nothing was read.
    """

    staging_object_id: int
    lines_in: int = 0
    rows_out: int = 0
    lines_filtered: int = 0
    lines_elsewhere: int = 0
    small: SmallObject | None = None
    quarantined: tuple[QuarantineCount, ...] = ()
    quarantine_key: str | None = None
    value_errors: tuple[ValueErrors, ...] = ()
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
    under, as JSON by version, but for the one in force. `lines_in` is what was read before.
    """

    date: date
    recorded: tuple[DayOfObject, ...]
    definitions: tuple[tuple[int, str], ...]
    lines_in: int

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

    Metrics are made of the columns with the ids `metric_columns`. `revision` is that of the output's key.
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
    written, unless the task `skips_empty`.
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

    `source` is the staging object as it was converted, and its definition that under which lines are read. Without a
    key nothing is written.
    """

    key: str
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


def to_json(work: Task[Any] | Result) -> str:
    """One line of JSON; `from_json` reads it back."""
    return _adapter(type(work)).dump_json(work, warnings="error").decode()


def from_json(kind: type[_Work], text: str) -> _Work:
    """Reads a task or a result of that class."""
    work: _Work = _adapter(kind).validate_json(text)
    return work


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
"""Made once a class: that takes as long as a thousand uses."""


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
