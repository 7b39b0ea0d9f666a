"""Converts blocks of lines to typed rows: most lines by columns, the rest one by one. The result is the same for each
line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from prism_assets.kernels.columns import Indices
from prism_assets.kernels.json.arrow_reader import Reader, TooManyBadError, WrongPlanError, blank
from prism_assets.kernels.json.block_rows import BlockRows
from prism_assets.kernels.json.blocks import Block, Lines, Mask, find_lines
from prism_assets.kernels.json.extract import KeyFinder
from prism_assets.kernels.json.infer import SAMPLE, Kinds, plan_of, sample_kinds
from prism_assets.kernels.json.lines import fact_columns, read_lines
from prism_assets.kernels.json.prefilter import suspects
from prism_assets.kernels.json.retry import unfit_lines
from prism_assets.kernels.json.rows import NOTHING, Fields, Reject, RejectedError, Value, read_line
from prism_assets.kernels.json.undefined import UndefinedFields
from prism_assets.kernels.typed import Layout, Misfits, TextNeededError, TypedRows, type_column, type_one_by_one

_ATTEMPTS = 12

Found = dict[str, dict[int, Value]]
"""Values by key and line."""
Picked = dict[int, dict[int, Value]]
"""Values by position of the column and line."""


@dataclass
class Hints:
    """Findings from earlier blocks of the same object. They make later blocks faster, never different."""

    kinds: Kinds = field(default_factory=dict)
    raw: set[str] = field(default_factory=set)
    has_others: bool = False
    """Some lines have fields without a column."""


def read_block(layout: Layout, block: Block, hints: Hints, *, by_columns: bool = True) -> BlockRows:
    """Reads a block. With `by_columns=False`, reads all lines one by one with the same result."""
    lines, odd = find_lines(block)
    if not len(lines):
        return BlockRows(lines, [], [], 0, UndefinedFields())
    marked = suspects(block.data, lines, odd) if by_columns else np.ones(len(lines), bool)
    parts: list[TypedRows] = []
    undefined = UndefinedFields()
    if not marked.all():
        reading = _BlockReading(layout, block.data, lines, marked, hints)
        rows = reading.rows()
        marked, undefined = reading.marked, reading.undefined
        parts.extend([rows] if rows is not None else [])
    slow = np.flatnonzero(marked)
    rejects: list[Reject] = []
    if len(slow):
        rest, rejects, undefined_elsewhere = read_lines(layout, _cut_out(block.data, lines, slow), lines.numbers)
        parts.append(rest)
        undefined.update(undefined_elsewhere)
    return BlockRows(lines, parts, rejects, len(lines) - len(slow), undefined)


def _cut_out(data: bytes, lines: Lines, wanted: Indices) -> list[tuple[int, bytes]]:
    starts, ends = lines.starts[wanted].tolist(), lines.ends[wanted].tolist()
    return [(line, data[start:end]) for line, start, end in zip(wanted.tolist(), starts, ends, strict=True)]


class _BlockReading:
    """Reads one block by columns. `marked` are the lines left to the exact reader."""

    def __init__(self, layout: Layout, data: bytes, lines: Lines, marked: Mask, hints: Hints) -> None:
        self._layout = layout
        self._data = data
        self._lines = lines
        self._unfit = marked
        self.marked = marked.copy()
        self.undefined = UndefinedFields()
        self._hints = hints
        self._patient = False
        self._found: Found | None = None
        self._picked: Picked = {}
        self._not_found = marked
        self._kinds = {**hints.kinds, **self._sample()}

    def rows(self) -> TypedRows | None:
        """Returns the rows of all lines not marked in the end, or None if no plan works."""
        for _ in range(_ATTEMPTS):
            self.marked = self._unfit.copy()
            rows, done = self._attempt()
            if done:
                return rows
        self.marked = np.ones(len(self._lines), bool)
        return None

    def _sample(self) -> Kinds:
        good = np.flatnonzero(~self.marked)
        chosen = good[np.unique(np.linspace(0, len(good) - 1, SAMPLE).astype(np.int64))]
        return sample_kinds(self._layout, self._texts(chosen))

    def _texts(self, wanted: Indices) -> list[bytes]:
        return [line for _, line in _cut_out(self._data, self._lines, wanted)]

    def _attempt(self) -> tuple[TypedRows | None, bool]:
        """Returns the rows, and whether the plan worked. Otherwise the next attempt uses a better plan."""
        plan = plan_of(self._layout, self._kinds)
        raw = [source for source, chosen in plan.items() if chosen is None or source in self._hints.raw]
        types = {source: chosen for source, chosen in plan.items() if chosen is not None and source not in raw}
        found = self._find(raw)
        candidates = np.flatnonzero(~self.marked)
        if not len(candidates):
            return None, True
        reader = self._reader(candidates, types)
        try:
            table = reader.read()
        except WrongPlanError as wrong:
            self._learn(reader, candidates, wrong.line)
            return None, False
        except TooManyBadError:
            self._examine_refused(reader, candidates)
            return None, False
        kept = candidates[~reader.refused]
        self.marked[candidates[reader.refused]] = True
        try:
            rows = self._typed(kept, _arrays(table), found)
        except TextNeededError as needed:
            self._hints.raw.add(needed.source)
            return None, False
        return (rows, True) if self._take_note(reader) else (None, False)

    def _take_note(self, reader: Reader) -> bool:
        """Counts undefined fields of the lines read. Returns False if the contract quarantines some lines for them."""
        finder = self._layout.undefined
        if finder is None or reader.exclusive:
            return True
        self._hints.has_others = self._hints.has_others or self._are_all(reader.types)
        seen = finder.find(reader.body, self._lines)
        if self._layout.freezes and len(seen.lines):
            self._unfit[seen.lines] = True
            return False
        self.undefined = seen.fields
        return True

    def _find(self, sources: list[str]) -> Found:
        """Returns the JSON text of some keys by key and line, and picks values. Marks lines for the exact reader."""
        found: Found = {source: {} for source in sources}
        picks = self._layout.lookups.picks
        if not sources and not picks:
            return found
        if self._found is not None and list(self._found) == sources:
            self.marked |= self._not_found
            return self._found
        finder = _finder(self._layout, sources)
        columns = list(found.items())
        self._picked = {position: {} for position in picks}
        for line, text in _cut_out(self._data, self._lines, np.flatnonzero(~self.marked)):
            fields = finder(text)
            if fields is None or not self._pick(fields, line):
                self.marked[line] = True
                continue
            for source, column in columns:
                column[line] = fields.get(source, NOTHING)
        self._found, self._not_found = found, self.marked.copy()
        return found

    def _pick(self, fields: Fields, line: int) -> bool:
        """Picks the values of a line. Returns False if the line needs the exact reader."""
        try:
            for position, pick in self._layout.lookups.picks.items():
                self._picked[position][line] = pick(fields, int(self._lines.numbers[line]))
        except RejectedError:
            return False
        return True

    def _reader(self, candidates: Indices, types: Mapping[str, pa.DataType]) -> Reader:
        body: bytes | bytearray = self._data
        marked = np.flatnonzero(self.marked)
        if len(marked):
            body = bytearray(self._data)
            starts, ends = self._lines.starts[marked].tolist(), self._lines.ends[marked].tolist()
            for start, end in zip(starts, ends, strict=True):
                blank(body, start, end)
        lines = self._lines.at(candidates)
        unsure = frozenset(types) - set(self._kinds)
        exclusive = self._layout.undefined is not None and self._are_all(types) and not self._hints.has_others
        return Reader(body, lines, types, unsure, self._patient, exclusive)

    def _are_all(self, types: Mapping[str, pa.DataType]) -> bool:
        """Whether `types` covers all keys read by columns, so no key must be found in the lines' text."""
        return len(types) == len(self._layout.lookups.wanted)

    def _learn(self, reader: Reader, candidates: Indices, line: int | None) -> None:
        """Remembers the kinds of values in a line, or the columns whose values do not match the plan."""
        if line is None:
            self._hints.raw.update(reader.misread())
        elif not self._learn_kinds(candidates[[line]]):
            self._hints.raw.update(reader.unsure)

    def _learn_kinds(self, lines: Indices) -> bool:
        seen = sample_kinds(self._layout, self._texts(lines))
        fresh = {source: kinds for source, kinds in seen.items() if source not in self._kinds}
        self._kinds.update(fresh)
        self._hints.kinds.update(fresh)
        return bool(fresh)

    def _examine_refused(self, reader: Reader, candidates: Indices) -> None:
        """Finds out why many lines are refused: a wrong guess, or malformed lines."""
        if self._learn_kinds(candidates[reader.refused]):
            return
        if self._patient:
            self._unfit[:] = True
            return
        self._patient = True
        lines = _cut_out(self._data, self._lines, candidates)
        self._unfit[unfit_lines(lines, reader.types)] = True

    def _typed(self, kept: Indices, arrays: Mapping[str, pa.Array], found: Found) -> TypedRows:
        """Converts all columns to their types. Raises TextNeededError."""
        layout, lines = self._layout, kept.tolist()
        columns: dict[int, pa.Array] = {}
        misfits: list[Misfits] = []
        for position, source in layout.lookups.plain.items():
            if source in arrays:
                array, bad = type_column(layout, position, arrays[source])
            else:
                array, bad = type_one_by_one(layout, position, map(found[source].__getitem__, lines))
            columns[position] = array
            misfits.extend(bad)
        for position, picked in self._picked.items():
            columns[position], bad = type_one_by_one(layout, position, map(picked.__getitem__, lines))
            misfits.extend(bad)
        for position, array, bad in fact_columns(layout, self._lines.numbers[kept]):
            columns[position] = array
            misfits.extend(bad)
        in_order = [columns[position] for position in range(len(columns))]
        return TypedRows(kept, in_order, misfits, self._absent(arrays, found, lines))

    def _absent(self, arrays: Mapping[str, pa.Array], found: Found, lines: list[int]) -> Mask:
        """Returns a mask of rows without a value for the partition column."""
        time = self._layout.partition
        if time in self._picked:
            return np.array([self._picked[time][line][0] is None for line in lines], bool)
        if time not in self._layout.lookups.plain:
            return np.zeros(len(lines), bool)
        source = self._layout.lookups.plain[time]
        if source in arrays:
            return np.asarray(arrays[source].is_null().to_numpy(zero_copy_only=False))
        return np.array([found[source][line][0] is None for line in lines], bool)


def _arrays(table: pa.Table) -> dict[str, pa.Array]:
    arrays = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        whole = column.combine_chunks()
        arrays[name] = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    return arrays


def _finder(layout: Layout, sources: list[str]) -> Callable[[bytes], Fields | None]:
    """Returns a function that finds some keys of a line, including those for picks. It returns None for the exact
    reader.
    """
    lookups = layout.lookups
    if lookups.collects:
        return partial(_read, lookups.wanted)
    keys = tuple(dict.fromkeys((*sources, *lookups.pick_keys)))
    finder = KeyFinder(keys)

    def find(line: bytes) -> Fields | None:
        values = finder.find(line.decode())
        return None if values is None else dict(zip(keys, values, strict=True))

    return find


def _read(wanted: Mapping[str, str], line: bytes) -> Fields | None:
    try:
        return read_line(line, wanted)
    except RejectedError:
        return None
