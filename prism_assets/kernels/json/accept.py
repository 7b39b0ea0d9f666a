"""Accepts typed rows into the table: the event date lies in the accepted window, and required columns are filled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.streams.reasons import (
    BAD_TIME,
    MISFIT,
    MISSING_TIME,
    NULL_IN_REQUIRED,
    TOO_LATE,
    TOO_NEW,
    TOO_OLD,
)
from prism_assets.domain.tables.accepted import DateRange
from prism_assets.domain.tables.options import SET_ASIDE
from prism_assets.kernels import times
from prism_assets.kernels.json.rows import Reject
from prism_assets.kernels.typed import Layout, Mask, TypedRows

Codes = npt.NDArray[np.int64]
Misfit = tuple[int, str, str]
"""A column, the path of a part below it, and a reason."""


@dataclass(frozen=True)
class Accepted:
    """Rows of the table."""

    numbers: npt.NDArray[np.int64]
    """Line numbers of the rows."""
    days: times.Days
    """Event dates of the rows."""
    columns: list[pa.Array]
    value_errors: dict[Misfit, int]
    """How many rows have values that did not fit."""


class Acceptance:
    """Decides by the object's accepted event dates, and for changes by the earliest accepted event time."""

    def __init__(self, layout: Layout, accepted: DateRange, earliest_change: datetime | None = None) -> None:
        self._layout = layout
        self._earliest = None if earliest_change is None else times.first_instant(earliest_change)
        first, last = times.to_day(accepted.first), times.to_day(accepted.last)
        self._calendar = times.Calendar(first, last, layout.table.zone)

    def divide(self, rows: TypedRows, numbers: npt.NDArray[np.int64]) -> tuple[Accepted, list[Reject]]:
        """Divides rows into accepted rows and rejected lines. `numbers` are the line numbers of the block."""
        days = self._days(rows.columns[self._layout.partition])
        reasons, codes = self._codes(rows, days)
        kept = codes < 0
        errors = {(bad.column, bad.path, bad.reason): int(kept[bad.rows].sum()) for bad in rows.misfits}
        if kept.all():
            return Accepted(numbers[rows.lines], days, rows.columns, errors), []
        mask = pa.array(kept)
        columns = [column.filter(mask) for column in rows.columns]
        rejects = [
            Reject(line, *reasons[code])
            for line, code in zip(rows.lines[~kept].tolist(), codes[~kept].tolist(), strict=True)
        ]
        return Accepted(numbers[rows.lines[kept]], days[kept], columns, errors), rejects

    def _days(self, column: pa.Array) -> times.Days:
        """Returns the event date of each row. Nulls get an arbitrary date."""
        if pa.types.is_date(column.type):
            return np.asarray(column.view(pa.int32()).fill_null(0).to_numpy(), np.int32)
        return self._calendar.days(column.view(pa.int64()).fill_null(0).to_numpy())

    def _codes(self, rows: TypedRows, days: times.Days) -> tuple[list[tuple[str, str]], Codes]:
        """Returns the reasons with their columns, and for each row the index of the first reason or -1."""
        reasons: list[tuple[str, str]] = []
        codes = np.full(len(rows.lines), -1, np.int64)
        for reason, column, mask in self._tests(rows, days):
            codes[mask & (codes < 0)] = len(reasons)
            reasons.append((reason, column))
        return reasons, codes

    def _tests(self, rows: TypedRows, days: times.Days) -> Iterator[tuple[str, str, Mask]]:
        layout, partition = self._layout, self._layout.partition
        time = layout.columns[partition].name
        yield MISSING_TIME, time, rows.absent
        yield BAD_TIME, time, _nulls(rows.columns[partition])
        yield TOO_OLD, time, days < self._calendar.first
        yield TOO_NEW, time, days > self._calendar.last
        if self._earliest is not None:
            instants = rows.columns[partition].view(pa.int64()).fill_null(0).to_numpy()
            yield TOO_LATE, time, instants < self._earliest
        for name in (column.name for column in layout.table.columns if column.required):
            if name != time:
                position = [column.name for column in layout.columns].index(name)
                yield NULL_IN_REQUIRED, name, _nulls(rows.columns[position])
        if layout.table.contract.misfits == SET_ASIDE:
            for bad in rows.misfits:
                mask = np.zeros(len(rows.lines), bool)
                mask[bad.rows] = True
                yield MISFIT, layout.program.columns[bad.column].name + bad.path, mask


def _nulls(column: pa.Array) -> Mask:
    if not column.null_count:
        return np.zeros(len(column), bool)
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))
