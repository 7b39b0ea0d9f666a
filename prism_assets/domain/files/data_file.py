"""The Parquet objects of a lake. Each is one value from the kernel that writes it to the manifest that names it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date, datetime
from heapq import nsmallest

from prism_assets.domain.columns.types import MILLISECONDS
from prism_assets.domain.days.partitions import Publication

_EXAMPLES = 5
MetricValue = bool | int | float | str
"""A bound as in JSON: days since 1970 for dates, milliseconds for timestamps, text for decimals."""


@dataclass(frozen=True)
class ColumnMetrics:
    """Statistics of one column's values in one object: the number of nulls, and bounds. None means unknown.

    No value is below `lower` or above `upper`. Neither bound needs to occur, because only the first characters of
    strings count.
    """

    column_id: int
    nulls: int | None
    lower: MetricValue | None
    upper: MetricValue | None


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One Parquet object, unchanged after its commit. Times are UTC."""

    bucket: str
    key: str
    content_length: int
    """Bytes."""
    row_count: int
    fingerprint: int
    """The signed 64-bit sum of its rows' fingerprints."""
    min_time: datetime | None = None
    """None in merged objects from before times were recorded."""
    max_time: datetime | None = None
    file_format: int = MILLISECONDS
    """The unit of its timestamps: MILLISECONDS or MICROSECONDS."""
    metrics: tuple[ColumnMetrics, ...] = ()
    """Statistics of some columns, by column id. Empty if none are recorded."""
    rows_erased: int = 0
    """Rows that erasures have removed from it."""
    erased_fingerprint: int = 0
    """The sum of these rows' fingerprints."""
    erasure_id: int = 0
    """It holds no row of any erasure of its table up to this one."""

    @property
    def url(self) -> str:
        """`s3://bucket/key`."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, kw_only=True)
class SmallObject(DataFile):
    """An object written by Stream: the rows of one staging object on one event date."""

    date: date
    staging_object_id: int
    generation: int
    """How often the staging object was restarted."""
    delayed: bool
    upload_start_time: datetime
    object_id: int = 0
    """0 until PostgreSQL has given an id."""
    definition_version: int = 0
    rewrite_id: int = 0
    """The rewrite that wrote the object, 0 for a batch of Stream."""


@dataclass(frozen=True, kw_only=True)
class MergedRange(DataFile):
    """An object written by Merge: the rows of a partition's small objects with lower_bound < id <= upper_bound."""

    lower_bound: int
    upper_bound: int
    rewrite_id: int = 0
    definition_version: int = 0
    """The definition with the names of its columns. 0 until recorded."""

    @classmethod
    def of(cls, written: DataFile, lower_bound: int, upper_bound: int, rewrite_id: int) -> MergedRange:
        """Returns the range of a written object."""
        facts = {field.name: getattr(written, field.name) for field in fields(DataFile)}
        return cls(**facts, lower_bound=lower_bound, upper_bound=upper_bound, rewrite_id=rewrite_id)


@dataclass(frozen=True, kw_only=True)
class PartitionContent:
    """The content of a partition's publication: each row once, in ranges and the small objects above them."""

    publication: Publication
    ranges: tuple[MergedRange, ...]
    small_objects: tuple[SmallObject, ...]
    records: tuple[DataFile, ...] = ()
    """Objects written by folds, on days of records, which have neither ranges nor small objects."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All objects in the order of manifests."""
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
