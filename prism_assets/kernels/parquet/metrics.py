"""Computes column metrics of a written object from the statistics in its footer.

Columns and fields of structs have metrics, by their ids; lists and maps have none. A null struct counts as a null of
its fields.

Every bound holds for every row. If the nearest bound is unknown, a farther one is given or none. Arrow omits statistics
for values over 4,096 bytes; a column without statistics in one row group has no bounds. NaN lies outside all bounds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.files.data_file import ColumnMetrics, MetricValue
from prism_assets.kernels.parquet.leaves import leaves_by_id

_LONGEST = 16
"""Characters of a string bound, as in Iceberg's own writers."""
_SURROGATES = range(0xD800, 0xE000)
_IN_A_MILLISECOND = {"ms": 1, "us": 1_000}


def column_metrics(metadata: pq.FileMetaData, column_ids: Collection[int]) -> tuple[ColumnMetrics, ...]:
    """Returns the metrics of the given columns and fields of structs in the object, by id."""
    if not column_ids:
        return ()
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return tuple(
        _metrics(number, leaf.kind, [group.column(leaf.place).statistics for group in groups])
        for number, leaf in sorted(leaves_by_id(metadata).items())
        if number in column_ids
    )


def _metrics(number: int, kind: pa.DataType, statistics: Sequence[pq.Statistics | None]) -> ColumnMetrics:
    counted = [entry for entry in statistics if entry is not None and entry.has_null_count]
    nulls = sum(entry.null_count for entry in counted) if len(counted) == len(statistics) else None
    # A row group without values has no bounds and needs none.
    holding = [entry for entry in statistics if entry is None or entry.num_values]
    if not holding or not all(entry is not None and entry.has_min_max for entry in holding):
        return ColumnMetrics(number, nulls, None, None)
    lowest, highest = zip(*(_extremes(kind, entry) for entry in holding), strict=True)
    return ColumnMetrics(number, nulls, _lower(kind, min(lowest)), _upper(kind, max(highest)))


def _extremes(kind: pa.DataType, entry: pq.Statistics) -> tuple[Any, Any]:
    """Returns the least and greatest value. Times are the stored integers, because Python cannot express every year."""
    raw = pa.types.is_temporal(kind)
    return (entry.min_raw, entry.max_raw) if raw else (entry.min, entry.max)


def _lower(kind: pa.DataType, value: Any) -> MetricValue | None:
    """Returns a lower bound: `value`, or the nearest lower value that can be expressed."""
    if pa.types.is_timestamp(kind):
        return int(value // _IN_A_MILLISECOND[kind.unit])
    if pa.types.is_floating(kind):
        return _finite(-0.0 if value == 0 else value)
    if pa.types.is_string(kind):
        return _start(value)
    return _plain(kind, value)


def _upper(kind: pa.DataType, value: Any) -> MetricValue | None:
    """Returns an upper bound: `value`, or the nearest higher value that can be expressed."""
    if pa.types.is_timestamp(kind):
        return int(-(-value // _IN_A_MILLISECOND[kind.unit]))
    if pa.types.is_floating(kind):
        return _finite(0.0 if value == 0 else value)
    if pa.types.is_string(kind):
        start = _start(value)
        return start if start == value else _raised(start)
    return _plain(kind, value)


def _plain(kind: pa.DataType, value: Any) -> MetricValue:
    plain_value: MetricValue = format(value, "f") if pa.types.is_decimal(kind) else value
    return plain_value


def _finite(value: float) -> float | None:
    """Returns None for infinities, because JSON has none."""
    return value if math.isfinite(value) else None


def _start(text: str) -> str:
    """Returns the first characters, up to a NUL, because jsonb refuses it."""
    return text[:_LONGEST].partition("\0")[0]


def _raised(start: str) -> str | None:
    """Returns the least text above all texts that begin with `start`, with no more characters. None if none exists."""
    while start:
        following = ord(start[-1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= sys.maxunicode:
            return start[:-1] + chr(following)
        start = start[:-1]
    return None
