"""Tasks that convert one staging object, and parts shared by other tasks on staging objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import ClassVar

from prism_assets.domain.columns.parts import path_of_key
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.work import Failure


@dataclass(frozen=True, kw_only=True)
class QuarantineCount:
    """The number of one staging object's lines quarantined for one reason. 0 for a reason that is only a remark."""

    reason: str
    line_count: int


@dataclass(frozen=True, kw_only=True)
class ValueErrors:
    """How many values of a column did not fit, or could not be computed."""

    column: str
    reason: str
    """`unfit`, `out_of_range`, `not_finite`, `too_long`, `cut` or `value_error`."""
    count: int


@dataclass(frozen=True, kw_only=True)
class UndefinedField:
    """How many fields with one key, read by no column, had values of one kind."""

    key: str
    within: str = ""
    """The path of the struct around it, such as `items[]`. "" for keys of lines."""
    kind: str
    """A value of `domain.drift.FieldKind`."""
    count: int
    line: int
    """The first line with such a field."""

    @property
    def path(self) -> str:
        """The field for people: `items[].sku`."""
        return path_of_key(self.within, self.key)


@dataclass(frozen=True, kw_only=True)
class SourceVersion:
    """The version of an object that the store has under the key of a staging object."""

    etag: str | None
    content_length: int
    """In bytes."""
    last_modified: datetime | None


@dataclass(frozen=True, kw_only=True)
class ConvertResult:
    """The end of the conversion of one staging object.

    Without a failure, `lines_in == rows_out + lines_quarantined + lines_filtered + lines_erased + lines_elsewhere`.
    Each number is counted by itself, none by subtraction.
    """

    staging_object_id: int
    lines_in: int = 0
    rows_out: int = 0
    lines_filtered: int = 0
    lines_erased: int = 0
    lines_elsewhere: int = 0
    """Lines that the route of the stream gives to other tables."""
    erasure_id: int = 0
    """The last erasure of the table whose rule was applied."""
    objects: tuple[SmallObject, ...] = ()
    quarantined: tuple[QuarantineCount, ...] = ()
    quarantine_key: str | None = None
    value_errors: tuple[ValueErrors, ...] = ()
    undefined: tuple[UndefinedField, ...] = ()
    """Fields of at most 500 keys."""
    compiled_lines: int = 0
    """Lines that the compiled kernel read."""
    changed: SourceVersion | None = None
    """Another version than the registered one lies under the key. Nothing of the object was read."""
    failure: Failure | None = None

    @property
    def lines_quarantined(self) -> int:
        """Lines set aside."""
        return sum(count.line_count for count in self.quarantined)

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id


@dataclass(frozen=True, kw_only=True)
class ConvertTask:
    """One staging object to convert under one definition of its table.

    The accepted event dates follow from `received`, `sent` and the key (`accepted_days`), so every attempt accepts the
    same rows.
    """

    staging_object_id: int
    bucket: str
    key: str
    etag: str | None
    content_length: int
    received: datetime
    """When the object was first seen."""
    stream_name: str
    delayed_dates: frozenset[date]
    """Rows of these dates go to the delayed tier, all others to the live tier."""
    table_id: int
    definition_version: int
    generation: int = 0
    """How often the object was restarted; part of the keys of the output."""
    rewrite_id: int = 0
    """The rewrite that converts the object again, 0 for a batch; part of the keys of the output."""
    sent: datetime | None = None
    """When the bucket got the object, if known."""
    metric_columns: tuple[int, ...] = ()
    """The ids of the columns with metrics."""
    retained_from: date | None = None
    """Rows of earlier days are too old for the table."""
    watermark: datetime | None = None
    """Changes of a join table are too late by this time: the table's when a batch first claimed the object."""
    read_definition: str | None = None
    """An earlier definition, as JSON, for an object whose stream the current one no longer names. The object is read as
    this one says, and has the format of its stream (`TableDefinition.with_stream_of`)."""
    erasures: tuple[ErasureRule, ...] = ()
    """Matching rows are left out."""
    erased_up_to: Mapping[date, int] = field(default_factory=dict)
    """For rows of these dates only erasures up to this id apply."""

    kernel: ClassVar[str] = "convert"
    result: ClassVar[type[ConvertResult]] = ConvertResult
    alone: ClassVar[bool] = False

    @property
    def erasure_id(self) -> int:
        """The last erasure of the table whose rule is applied."""
        return max((rule.erasure_id for rule in self.erasures), default=0)

    @property
    def task_id(self) -> int:
        """The staging object."""
        return self.staging_object_id

    @property
    def input_bytes(self) -> int:
        """Bytes of the staging object."""
        return self.content_length

    def failed(self, failure: Failure) -> ConvertResult:
        """Returns a result without rows."""
        return ConvertResult(staging_object_id=self.staging_object_id, failure=failure)


@dataclass(frozen=True, kw_only=True)
class OtherDefinition:
    """Another definition of the table, as JSON, with the fields of a `ConvertTask` that depend on the definition."""

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
    """A task about a staging object. `source` has the definition to read it under, and its length."""

    source: ConvertTask

    @property
    def table_id(self) -> int:
        """The table of the definition."""
        return self.source.table_id

    @property
    def definition_version(self) -> int:
        """The definition to read the staging object under."""
        return self.source.definition_version

    @property
    def input_bytes(self) -> int:
        """Bytes of the staging object."""
        return self.source.content_length
