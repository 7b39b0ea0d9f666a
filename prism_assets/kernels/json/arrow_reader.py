"""Reads well-formed lines with Arrow's JSON reader. Arrow ignores line ends, so this module finds the line at fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.json

from prism_assets.kernels.json.blocks import Lines, Mask

# A column absent from nearly all lines. It preserves the number of rows when no column is read.
_NOWHERE = "\0"
_ROW = re.compile(r"in row (\d+)")
_VALUE = re.compile(r"Failed to convert JSON to (\w+).*parse:(.*)", re.DOTALL)
_OTHER = "unexpected field"
_CHANGED = re.compile(r"Column\(/(.*)\) changed from", re.DOTALL)
_MANY = 16
_MANY_SHARE = 200
_PATIENCE = 64
_SMALL_STEP = 400
_STEADY = 8


class TooManyBadError(Exception):
    """Arrow refuses so many lines that checking each one is cheaper."""


class WrongPlanError(Exception):
    """A column contains other values than the plan assumes. `line` is an example, if known."""

    def __init__(self, line: int | None = None) -> None:
        super().__init__()
        self.line = line


@dataclass
class Reader:
    """Reads lines of a block. The rest of the block must be blank."""

    body: bytearray | bytes
    lines: Lines
    types: Mapping[str, pa.DataType]
    unsure: frozenset[str] = frozenset()
    """Columns whose type is a guess."""
    patient: bool = False
    exclusive: bool = False
    """Also look for fields outside `types`. This is free until the first such field, which sets it to false."""
    refused: Mask = field(init=False)
    """Marks lines Arrow could not read. Grows during the reading."""
    _schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self._schema = pa.schema(list(self.types.items()) or [(_NOWHERE, pa.bool_())])
        self.exclusive = self.exclusive and bool(self.types)
        self.refused = np.zeros(len(self.lines), bool)

    def read(self) -> pa.Table:
        """Returns the rows of all lines not refused. Raises WrongPlanError or TooManyBadError."""
        tables: list[pa.Table] = []
        position, total = 0, len(self.lines)
        step, steady = total, 0
        while position < total:
            stop = min(total, position + step)
            table, bad = self._try(position, stop)
            if table is None:
                self._refuse(bad)
                step, steady = _SMALL_STEP, 0
                continue
            tables.append(table)
            position, steady = stop, steady + 1
            if steady >= _STEADY:
                step, steady = step * 2, 0
        read = pa.concat_tables(tables).select(list(self.types))
        return read.filter(pa.array(~self.refused)) if self.refused.any() else read

    def _refuse(self, index: int) -> None:
        """Replaces a line by an empty object, so rows and lines stay aligned."""
        failures = int(self.refused.sum())
        bearable = _PATIENCE if self.patient else _MANY
        if self.refused[index] or (failures >= bearable and failures * _MANY_SHARE > index):
            raise TooManyBadError
        self.refused[index] = True
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)
        blank(self.body, int(self.lines.starts[index]), int(self.lines.ends[index]), b"{}")

    def _try(self, start: int, stop: int) -> tuple[pa.Table | None, int]:
        """Returns the rows of lines [start, stop), or a line at fault."""
        first, last = int(self.lines.starts[start]), int(self.lines.ends[stop - 1])
        try:
            table = _parse(pa.py_buffer(self.body)[first:last], self._schema, exclusive=self.exclusive)
        except pa.ArrowInvalid as error:
            if self.exclusive and _OTHER in str(error):
                self.exclusive = False
                return self._try(start, stop)
            return None, self._at_fault(str(error), start, stop)
        if table.num_rows == stop - start:
            return table, 0
        return None, self._halve(start, stop)

    def misread(self) -> list[str]:
        """Returns the numeric columns with values outside their type, or all of them if none can be singled out."""
        numeric = [source for source, chosen in self.types.items() if pa.types.is_primitive(chosen)]
        body = pa.py_buffer(self.body)
        return [source for source in numeric if not _holds(body, source, self.types[source])] or numeric

    def _at_fault(self, message: str, start: int, stop: int) -> int:
        row = _ROW.search(message)
        value = None if row else _VALUE.search(message)
        if value:
            return self._holding(value[1], value[2], start, stop)
        line = start + int(row[1]) if row else stop
        if line >= stop or self.refused[line]:
            return self._halve(start, stop)
        changed = _CHANGED.search(message)
        if changed and changed[1] in self.unsure:
            raise WrongPlanError(line)
        return line

    def _holding(self, kind: str, value: str, start: int, stop: int) -> int:
        """Returns the first line that seems to have this value in a column read as `kind`."""
        sources = [re.escape(source) for source, chosen in self.types.items() if str(chosen) == kind]
        pattern = rf'"(?:{"|".join(sources)})"[ \t\r]*:[ \t\r]*{re.escape(value)}[ \t\r]*[,}}]'
        first, last = int(self.lines.starts[start]), int(self.lines.ends[stop - 1])
        found = re.compile(pattern.encode()).search(self.body, first, last)
        if found is None:
            raise WrongPlanError
        line = int(np.searchsorted(self.lines.starts, found.start(), side="right")) - 1
        if self.refused[line]:
            raise WrongPlanError
        return line

    def _halve(self, start: int, stop: int) -> int:
        """Finds a line at fault by halving."""
        while stop - start > 1:
            middle = (start + stop) // 2
            table, bad = self._try(start, middle)
            if table is None:
                return bad
            start = middle
        return start


def _holds(body: pa.Buffer, source: str, chosen: pa.DataType) -> bool:
    try:
        _parse(body, pa.schema([(source, chosen)]))
    except pa.ArrowInvalid as error:
        return _VALUE.search(str(error)) is None
    return True


def _parse(body: pa.Buffer, schema: pa.Schema, *, exclusive: bool = False) -> pa.Table:
    unexpected = "error" if exclusive else "ignore"
    return pyarrow.json.open_json(
        pa.BufferReader(body),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=body.size + 64),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    ).read_all()


def blank(body: bytearray, start: int, end: int, instead: bytes = b"") -> None:
    """Overwrites the bytes [start, end) with `instead`, padded with spaces."""
    body[start:end] = instead.ljust(end - start)
