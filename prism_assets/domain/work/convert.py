"""Converting one staging object, and what else is done with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import ClassVar

from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.files import SmallObject
from prism_assets.domain.work import Failure


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
    Where that definition names no stream of the object, it is read as the stream of `read_definition`, as JSON, says;
    which format it has is said there, too (`TableDefinition.with_stream_of`).
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
    read_definition: str | None = None
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
class OtherDefinition:
    """Another definition of the table, as JSON, and how a staging object is read under that.

    The other fields are those of its `ConvertTask` under it.
    """

    version: int
    definition: str
    stream_name: str
    read_definition: str | None

    def of(self, source: ConvertTask) -> ConvertTask:
        """The task of a staging object under this definition."""
        return replace(
            source,
            definition_version=self.version,
            stream_name=self.stream_name,
            read_definition=self.read_definition,
        )


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
