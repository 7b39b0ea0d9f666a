"""Splits the documents of an object into blocks of records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing

import numpy as np

from prism_assets.domain.streams.documents import OuterKey, RecordSteps
from prism_assets.domain.streams.sources import Outer
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.documents.blocks import DocumentBlock, reason_of
from prism_assets.kernels.documents.compiled import CompiledScanner
from prism_assets.kernels.documents.cutter import Cutter, Found, Piece, Scanning
from prism_assets.kernels.documents.outer import HeldBytes, OuterRows
from prism_assets.kernels.documents.scanner import Scanner
from prism_assets.kernels.json.blocks import (
    LINE_LIMIT,
    Block,
    LongLine,
    Original,
    OuterValues,
    Positions,
    Unread,
    without_bom,
)
from prism_assets.kernels.json.rows import Value

Part = Block | LongLine
_COPIES_MEMORY = 8 << 20
"""The most bytes of copies of values around the records of one block, for each column that reads them.

Rows go to disk between blocks, so a block adds its copies to the rows in memory.
"""
_OPEN_OBJECT = ord("{")
MakeScanner = Callable[[RecordSteps, Sequence[OuterKey]], Scanning]


def make_scanner() -> MakeScanner:
    """Returns the maker of compiled scanners if this process has them, otherwise of those in Python."""
    module = loaded_kernel().module
    if module is None:
        return Scanner
    return lambda steps, outer: CompiledScanner(module, steps, outer)


def split_documents(
    pieces: Iterable[bytes],
    steps: RecordSteps,
    outer: Sequence[Outer] = (),
    *,
    most: int | None = None,
    is_cut: Callable[[], bool] = lambda: False,
    make: MakeScanner | None = None,
) -> Iterator[Part]:
    """Yields the records of an object's documents as blocks of lines, at most `most` records.

    `outer` are the sources around the records whose values the blocks have. `is_cut` says, after the last piece, that
    the object goes on: then documents that do not end are no damage.
    """
    make = make or make_scanner()
    offset, content = without_bom(pieces)
    if outer:
        parts = _read_twice(content, offset, steps, outer, make, is_cut)
    else:
        parts = _read_once(content, Cutter(make(steps, ()), offset), is_cut)
    return parts if most is None else _first(parts, most)


def _read_once(pieces: Iterable[bytes], cutter: Cutter, is_cut: Callable[[], bool]) -> Iterator[Part]:
    writer = _BlockWriter()
    for piece in pieces:
        for cut in cutter.feed(piece):
            yield from writer.parts(cut)
    if not is_cut():
        for cut in cutter.finish():
            yield from writer.parts(cut)


def _read_twice(
    pieces: Iterable[bytes],
    offset: int,
    steps: RecordSteps,
    outer: Sequence[Outer],
    make: MakeScanner,
    is_cut: Callable[[], bool],
) -> Iterator[Part]:
    """Scans each document for the values around its records, and then for its records."""
    with ExitStack() as stack:
        rows = stack.enter_context(closing(OuterRows(steps, outer)))
        held = stack.enter_context(closing(HeldBytes()))
        first, second = (Cutter(make(steps, rows.keys), offset) for _ in range(2))
        writer, done = _BlockWriter(rows), offset
        for piece in pieces:
            held.add(piece)
            _collect(first.feed(piece), rows)
            ready, done = first.settled - done, first.settled
            for again in held.take(ready):
                for cut in second.feed(again):
                    yield from writer.parts(cut)
        _collect([first.abandoned()] if is_cut() else first.finish(), rows)
        for again in held.take(held.size):
            for cut in second.feed(again):
                yield from writer.parts(cut)
        if not is_cut():
            for cut in second.finish():
                yield from writer.parts(cut)


def _collect(cuts: Iterable[Found | Piece], rows: OuterRows) -> None:
    for cut in cuts:
        if isinstance(cut, Found):
            rows.add(cut.scan.rows)


def _first(parts: Iterator[Part], most: int) -> Iterator[Part]:
    """Yields parts with at most so many records in all."""
    for part in parts:
        count = len(part.starts) if isinstance(part, DocumentBlock) else 1
        yield part.first(most) if isinstance(part, DocumentBlock) and count > most else part
        most -= count
        if most <= 0:
            return


class _BlockWriter:
    """Numbers the pieces of one object, and writes them as lines."""

    def __init__(self, outer: OuterRows | None = None) -> None:
        self._outer = outer
        self._number = 1

    def parts(self, cut: Found | Piece) -> Iterator[Part]:
        """Yields what was cut out of an object."""
        if isinstance(cut, Piece):
            yield self._alone(cut)
            return
        starts, ends = np.asarray(cut.scan.starts, np.int64), np.asarray(cut.scan.ends, np.int64)
        flags = np.asarray(cut.scan.flags, np.int64)
        if self._outer is None and not flags.any():
            if len(starts):
                yield self._block(cut, starts, ends, 0, len(starts), {})
            return
        reasons = {place: why for place in np.flatnonzero(flags).tolist() if (why := reason_of(flags[place]))}
        begun = deque(cut.scan.begun if self._outer else ())
        long = [place for place in reasons if starts[place] < 0 or ends[place] - starts[place] > LINE_LIMIT]
        first = 0
        for place in [*long, len(starts)]:
            if place > first or place == len(starts):
                yield from self._with_outer(cut, starts, ends, first, place, reasons, begun)
            if place < len(starts):
                yield self._alone(_long_piece(cut, int(starts[place]), int(ends[place]), reasons[place]))
            first = place + 1

    def _with_outer(
        self,
        cut: Found,
        starts: Positions,
        ends: Positions,
        first: int,
        last: int,
        reasons: dict[int, str],
        begun: deque[tuple[int, int]],
    ) -> Iterator[Part]:
        """Yields the pieces from `first` to before `last` with the values around them.

        A reader copies these values for each record, so a block has only so many records as the copies have room.
        """
        why = {place: reason for place, reason in reasons.items() if first <= place < last}
        runs: list[OuterValues] = []
        room = _COPIES_MEMORY
        for place, until, values, reason in self._runs(first, last, begun):
            size = sum(len(text.encode()) for _, text in values)
            while place < until:
                fitting = room // size if size else until - place
                if not fitting and place > first:
                    yield self._block(cut, starts, ends, first, place, why, tuple(runs))
                    first, runs, room = place, [], _COPIES_MEMORY
                    continue
                end = min(until, place + max(fitting, 1))
                runs.append(OuterValues(self._number + place - first, values))
                if reason:
                    # Other pieces are no objects, and need no values: their readers say so.
                    objects = [item for item in range(place, end) if cut.buffer[starts[item]] == _OPEN_OBJECT]
                    why |= {item: why.get(item, reason) for item in objects}
                room -= size * (end - place)
                place = end
        if last > first:
            yield self._block(cut, starts, ends, first, last, why, tuple(runs))

    def _runs(
        self, first: int, last: int, begun: deque[tuple[int, int]]
    ) -> Iterator[tuple[int, int, tuple[Value, ...], str | None]]:
        """Yields the places of pieces with the same values around them, the values, and why these are bad."""
        if self._outer is None:
            return
        while True:
            while begun and begun[0][0] <= first:  # at the end: of a record that ends in a later buffer
                self._outer.begin(begun.popleft()[1])
            if first == last:
                return
            until = min(begun[0][0] if begun else last, last)
            yield first, until, self._outer.values, self._outer.reason
            first = until

    def _block(
        self,
        cut: Found,
        starts: Positions,
        ends: Positions,
        first: int,
        last: int,
        why: dict[int, str],
        runs: tuple[OuterValues, ...] = (),
    ) -> Block:
        """Returns the pieces from `first` to before `last`. `why` has the reasons of those that are no records."""
        reasons = {place - first: reason for place, reason in why.items() if first <= place < last}
        lines = cut.scan.lines if last - first == len(starts) else None
        starts, ends = starts[first:last], ends[first:last]
        if lines is None or reasons:
            lines = _as_lines(cut.buffer, starts, ends, reasons)
        number = self._number
        self._number += len(starts)
        unread = [
            Unread(number + place, why, _original(cut, int(starts[place]), int(ends[place])))
            for place, why in sorted(reasons.items())
        ]
        return DocumentBlock(
            lines, number, cut.offset, tuple(unread), runs, content=cut.buffer, starts=starts, ends=ends
        )

    def _alone(self, piece: Piece) -> Part:
        number = self._number
        self._number += 1
        if piece.is_long:
            return LongLine(number, piece.content, piece.length, piece.offset, piece.reason)
        unread = Unread(number, piece.reason, Original(piece.content, piece.offset, piece.length))
        ends = np.array([piece.length], np.int64)
        starts = np.zeros(1, np.int64)
        return DocumentBlock(b"\n", number, piece.offset, (unread,), content=piece.content, starts=starts, ends=ends)


def _as_lines(content: bytes, starts: Positions, ends: Positions, blank: dict[int, str]) -> bytes:
    places = enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
    lines = [b"" if place in blank else content[start:end].replace(b"\n", b" ") for place, (start, end) in places]
    return b"\n".join([*lines, b""])


def _original(cut: Found, start: int, end: int) -> Original:
    return Original(cut.buffer[start:end], cut.offset + start, end - start)


def _long_piece(cut: Found, start: int, end: int, reason: str) -> Piece:
    """Returns a piece with more than 16 MiB, which may begin before the buffer."""
    if start >= 0 or cut.begun is None:
        return Piece(cut.buffer[start : min(end, start + LINE_LIMIT)], cut.offset + start, end - start, reason)
    return Piece(cut.begun.content, cut.begun.offset, cut.offset + end - cut.begun.offset, reason)
