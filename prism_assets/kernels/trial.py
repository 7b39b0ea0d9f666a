"""Reads the first lines of an object as a conversion does, and reports the fate of each line. Writes nothing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.tables.accepted import DateRange, accepted_days
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertTask, QuarantineCount, UndefinedField, ValueErrors
from prism_assets.kernels import times
from prism_assets.kernels.expressions.session import Secrets, secret_of_worker
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.json.accept import Accepted
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.parquet.format import schema_of
from prism_assets.kernels.reading import ObjectReading, facts_of
from prism_assets.kernels.typed import Layout

LIMITS = Limits()
ROW, FILTERED, ELSEWHERE = "row", "filtered", "elsewhere"
"""The fates of lines outside of quarantine."""


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """A line as quarantine keeps it.

    `text` is None where quarantine keeps only the place, and base64 for a line that is no text.
    """

    line: int | None
    reason: str
    column: str | None
    text: str | None


@dataclass(frozen=True, kw_only=True)
class ObjectTrial:
    """The fates of the lines of one object. `rows` are in the order of their `numbers`."""

    layout: Layout
    lines_in: int
    rows: pa.Table
    numbers: npt.NDArray[np.int64]
    days: times.Days
    filtered: int
    elsewhere: int
    elsewhere_numbers: Sequence[int]
    """The lines that the route gives to other tables."""
    quarantined: tuple[QuarantineCount, ...]
    set_aside: Sequence[SetAside]
    value_errors: tuple[ValueErrors, ...]
    undefined: tuple[UndefinedField, ...]

    def fates(self) -> dict[int, str]:
        """Returns the fate of each line, without filtered ones: `ROW`, `ELSEWHERE`, or the quarantine reason."""
        found = {line.line: line.reason for line in self.set_aside if line.line is not None}
        found |= dict.fromkeys(self.elsewhere_numbers, ELSEWHERE)
        return found | dict.fromkeys(self.numbers.tolist(), ROW)


class _NumberedRows:
    """Keeps rows with the numbers of their lines."""

    def __init__(self, layout: Layout) -> None:
        self.count = 0
        fields = zip(schema_of(layout), layout.columns, strict=True)
        self._schema = pa.schema([field.with_name(column.name) for field, column in fields])
        self._parts: list[Accepted] = []

    def add(self, accepted: Accepted) -> None:
        self._parts.append(accepted)
        self.count += len(accepted.numbers)

    def settle(self) -> None:
        """Does nothing: the rows of a trial fit in memory."""

    def close(self) -> None:
        self._parts.clear()

    def in_order(self) -> tuple[pa.Table, npt.NDArray[np.int64], times.Days]:
        tables = [pa.Table.from_arrays(part.columns, schema=self._schema) for part in self._parts]
        table = pa.concat_tables(tables) if tables else self._schema.empty_table()
        numbers = np.concatenate([np.zeros(0, np.int64), *(part.numbers for part in self._parts)])
        days = np.concatenate([np.zeros(0, np.int32), *(part.days for part in self._parts)])
        order = np.argsort(numbers, kind="stable")
        return table.take(pa.array(order)).combine_chunks(), numbers[order], days[order]


def try_object(
    task: ConvertTask,
    table: TableDefinition,
    chunks: Callable[[], Iterator[bytes]],
    first: FirstLines,
    *,
    accepted: DateRange | None = None,
    secret_of: Secrets = secret_of_worker,
    limits: Limits = LIMITS,
) -> ObjectTrial:
    """Reads the `first` lines of an object that `chunks` opens. Rows lie on the `accepted` days, by default the task's.

    Raises the errors of a conversion.
    """
    stream = table.stream_of(task.bucket, task.key)
    layout = Layout.of(table.for_object(task.bucket, task.key), facts_of(task), stream)
    reading = ObjectReading(
        task,
        layout,
        accepted or accepted_days(table, task),
        chunks,
        lambda: _NumberedRows(layout),
        limits=limits,
        first=first,
        secret_of=secret_of,
    )
    with closing(reading):
        reading.read_all()
        rows, numbers, days = reading.rows.in_order()
        return ObjectTrial(
            layout=layout,
            lines_in=reading.lines_in,
            rows=rows,
            numbers=numbers,
            days=days,
            filtered=reading.filtered,
            elsewhere=reading.elsewhere,
            elsewhere_numbers=reading.elsewhere_numbers,
            quarantined=reading.quarantined(),
            set_aside=_set_aside(reading.quarantine.finish()),
            value_errors=reading.value_errors(),
            undefined=reading.undefined(),
        )


def _set_aside(kept: memoryview) -> list[SetAside]:
    records = map(json.loads, gzip.decompress(kept).splitlines())
    return [
        SetAside(
            line=record["line"],
            reason=record["reason"],
            column=record["column"],
            text=record.get("text", record.get("base64")),
        )
        for record in records
    ]


def plain(value: Any) -> Any:
    """Returns a stored value as JSON. Decimals and times are text, because JSON lacks them."""
    match value:
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {name: plain(part) for name, part in value.items()}
        case [(_, _), *_] if all(isinstance(entry, tuple) for entry in value):  # a map
            return {key: plain(part) for key, part in value}
        case list():
            return [plain(part) for part in value]
        case _:
            return value
