"""The Parquet objects of a lake, each the same value from the kernel that writes it to the manifest that names it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date, datetime
from heapq import nsmallest

from prism_assets.domain.columns.types import MILLISECONDS
from prism_assets.domain.days.partitions import Publication

_EXAMPLES = 5
MetricValue = bool | int | float | str
"""A bound as JSON has it: days since 1970 of dates, milliseconds of timestamps, the text of decimals."""


@dataclass(frozen=True)
class ColumnMetrics:
    """What is known of the values of one column in one object: how many are null, and between which values they lie.

    None where it is not known. No value is below `lower` or above `upper`; there may be none that equals them, as of
    strings only the first characters count.
    """

    column_id: int
    nulls: int | None
    lower: MetricValue | None
    upper: MetricValue | None


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One Parquet object, which never changes once it is committed.

    `content_length` is in bytes, `fingerprint` the signed 64-bit sum of those of its rows. Times are UTC; they are not
    known of merged objects that were written before anybody recorded them. `file_format` is the unit of its timestamps:
    MILLISECONDS or MICROSECONDS. `metrics` are those of some columns, by column id; none if nobody recorded them.
    `rows_erased` were in it once, with the sum `erased_fingerprint`, and it holds no row of any erasure of its table up
    to `erasure_id`.
    """

    bucket: str
    key: str
    content_length: int
    row_count: int
    fingerprint: int
    min_time: datetime | None = None
    max_time: datetime | None = None
    file_format: int = MILLISECONDS
    metrics: tuple[ColumnMetrics, ...] = ()
    rows_erased: int = 0
    erased_fingerprint: int = 0
    erasure_id: int = 0

    @property
    def url(self) -> str:
        """`s3://bucket/key`."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, kw_only=True)
class SmallObject(DataFile):
    """What Stream writes: the rows of one staging object for one event date.

    `generation` counts how often the staging object was restarted; `rewrite_id` is the rewrite that put the object in
    its place, 0 for the first one. `object_id` is 0 until PostgreSQL gave one.
    """

    date: date
    staging_object_id: int
    generation: int
    delayed: bool
    upload_start_time: datetime
    object_id: int = 0
    definition_version: int = 0
    rewrite_id: int = 0


@dataclass(frozen=True, kw_only=True)
class MergedRange(DataFile):
    """What Merge writes: the rows of the small objects of a partition with lower_bound < id <= upper_bound.

    `rewrite_id` is the rewrite that wrote the object, 0 for a first merge. `definition_version` is that whose names its
    columns have; 0 until it is recorded.
    """

    lower_bound: int
    upper_bound: int
    rewrite_id: int = 0
    definition_version: int = 0

    @classmethod
    def of(cls, written: DataFile, lower_bound: int, upper_bound: int, rewrite_id: int) -> MergedRange:
        """The range of a written object."""
        facts = {field.name: getattr(written, field.name) for field in fields(DataFile)}
        return cls(**facts, lower_bound=lower_bound, upper_bound=upper_bound, rewrite_id=rewrite_id)


@dataclass(frozen=True, kw_only=True)
class PartitionContent:
    """What a publication of a partition shows: each row once, in its ranges and the small objects above them.

    Days of the records of join tables have neither: they have `records`, objects that folds wrote.
    """

    publication: Publication
    ranges: tuple[MergedRange, ...]
    small_objects: tuple[SmallObject, ...]
    records: tuple[DataFile, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """In the order in which manifests name them."""
        return (*self.ranges, *self.small_objects, *self.records)

    @property
    def row_count(self) -> int:
        """Rows of all objects."""
        return sum(file.row_count for file in self.files)

    @property
    def content_length(self) -> int:
        """Bytes of all objects."""
        return sum(file.content_length for file in self.files)


def smallest_urls(files: Iterable[DataFile]) -> tuple[str, ...]:
    """Returns addresses of the smallest objects, as examples quick to read."""
    return tuple(file.url for file in nsmallest(_EXAMPLES, files, key=lambda file: file.content_length))


def time_bounds(files: Iterable[DataFile]) -> tuple[datetime | None, datetime | None]:
    """Returns the first and the last time of the objects' rows, or None if one is unknown."""
    bounds = [(file.min_time, file.max_time) for file in files]
    lows, highs = [low for low, _ in bounds if low], [high for _, high in bounds if high]
    whole = bool(bounds) and len(lows) == len(highs) == len(bounds)
    return (min(lows), max(highs)) if whole else (None, None)
