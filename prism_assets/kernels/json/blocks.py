"""Splits objects into blocks of whole lines. Lines are numbered from 1, blank ones included, as in an editor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from prism_assets.domain.streams.reasons import LINE_TOO_LONG
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.json.rows import Value
from prism_assets.kernels.messages.facts import MessageFacts

LINE_LIMIT = 16 << 20

BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r"
_NEWLINE, _RETURN, _SPACE = 10, 13, 32
_STEP = 1 << 16

Positions = npt.NDArray[np.int64]
Whole = Callable[[bytes], bytes]
"""Returns a line as quarantine keeps it: with all fields, with or without a column."""


@dataclass(frozen=True)
class Original:
    """A quarantined line: its kept content, and its position in the object's content in bytes."""

    content: bytes
    offset: int
    length: int


@dataclass(frozen=True)
class Unread:
    """An unreadable line: number, reason and content."""

    number: int
    reason: str
    original: Original


@dataclass(frozen=True)
class OuterValues:
    """The values around lines, for all lines from number `first` on to the next such values."""

    first: int
    values: tuple[Value, ...]
    """By the number of the source in the layout's lookups."""


@dataclass(frozen=True)
class Block:
    """Whole lines. Only the last line of an object may lack its line end."""

    data: bytes
    first_line: int
    """Number of the first line."""
    offset: int = 0
    """Position of the block in the object's content."""
    unread: tuple[Unread, ...] = ()
    """Unreadable lines. They are blank in `data`."""
    outer: tuple[OuterValues, ...] = ()
    """The values around the lines, in the order of lines. Only records of documents and messages have some."""
    messages: MessageFacts | None = None
    """The facts about the lines that are messages, by number."""
    filtered: tuple[int, ...] = ()
    """The numbers of lines that the stream filters, in order. They are blank in `data`."""

    def original(self, number: int, start: int, end: int) -> Original:
        """Returns line `number`, the bytes [start, end) of `data`."""
        return Original(self.data[start:end], self.offset + start, end - start)

    def originals(self) -> Iterator[tuple[int, Original]]:
        """Yields all lines that are not blank with their numbers. Used for objects nobody can read."""
        lines = find_lines(self)
        for number, start, end in zip(lines.numbers.tolist(), lines.starts.tolist(), lines.ends.tolist(), strict=True):
            yield number, self.original(number, start, end)


@dataclass(frozen=True)
class LongLine:
    """A line too long to hold."""

    line: int
    """Its number."""
    head: bytes
    """Its first 16 MiB."""
    length: int
    """Its length in bytes."""
    offset: int
    """Its position in the object's content."""
    reason: str = LINE_TOO_LONG


@dataclass(frozen=True)
class Lines:
    """The lines of a block that are not blank: offsets without line ends, and line numbers."""

    starts: Positions
    ends: Positions
    numbers: Positions

    def __len__(self) -> int:
        return len(self.starts)


def split(pieces: Iterable[bytes]) -> Iterator[Block | LongLine]:
    """Cuts a stream of bytes into blocks of whole lines. Drops a byte order mark, and limits the length of lines."""
    offset, rest = without_bom(pieces)
    splitter = _LineSplitter(offset)
    for piece in rest:
        yield from splitter.feed(piece)
    yield from splitter.finish()


def without_bom(pieces: Iterable[bytes]) -> tuple[int, Iterator[bytes]]:
    """Returns the length of the byte order mark, or 0 without one, and the content after it."""
    iterator = iter(pieces)
    head = b""
    for piece in iterator:
        head += piece
        if len(head) >= len(BOM):
            break
    offset = len(BOM) if head.startswith(BOM) else 0
    return offset, chain([head[offset:]], iterator)


class _LineSplitter:
    """Buffers the beginning of an incomplete line."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """Position of the incomplete line in the object's content."""
        self._line = 1
        self._uncounted = b""
        """The last block, whose line ends are not in `_line` yet. The last one of an object is never counted."""
        self._pending = bytearray()
        self._skipped = 0

    def feed(self, piece: bytes) -> Iterator[Block | LongLine]:
        first_end = piece.find(b"\n") + 1
        if not first_end:
            self._extend(piece)
            return
        if len(self._pending) + first_end > LINE_LIMIT:
            self._extend(piece[: first_end - 1])
            yield from self._end_of_long_line()
            piece = piece[first_end:]
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield self._block(piece, cut)
        self._extend(piece[cut:])

    def finish(self) -> Iterator[Block | LongLine]:
        if self._skipped or len(self._pending) > LINE_LIMIT:
            yield from self._end_of_long_line()
        elif self._pending:
            yield self._block(b"", 0)

    def _extend(self, data: bytes) -> None:
        room = LINE_LIMIT + 2 - len(self._pending)
        self._pending += data[:room]
        self._skipped += max(0, len(data) - room)

    def _end_of_long_line(self) -> Iterator[Block | LongLine]:
        length = len(self._pending) + self._skipped
        if not self._skipped and self._pending.endswith(b"\r"):
            length -= 1
        if length <= LINE_LIMIT:
            yield self._block(b"\n", 1)
            return
        yield LongLine(self._next_line(), bytes(self._pending[:LINE_LIMIT]), length, self.offset)
        self.offset += len(self._pending) + self._skipped + 1
        self._pending, self._skipped = bytearray(), 0
        self._line += 1

    def _block(self, piece: bytes, cut: int) -> Block:
        """Returns a block of the incomplete line and the piece up to a place. Bytes are copied once at most."""
        is_whole = not self._pending and cut == len(piece)
        data = piece if is_whole else b"".join((self._pending, memoryview(piece)[:cut]))
        block = Block(data, self._next_line(), self.offset)
        self.offset += len(block.data)
        self._pending = bytearray()
        self._uncounted = block.data
        return block

    def _next_line(self) -> int:
        """Returns the number of the line after all blocks and long lines."""
        self._line += count_line_ends(self._uncounted)
        self._uncounted = b""
        return self._line


def divided(block: Block, most: int) -> Iterator[tuple[int, Block]]:
    """Cuts a block into blocks of at most so many lines, each with its place in the whole one."""
    # A line that is not blank has two bytes at least, with its end.
    if len(block.data) // 2 <= most or count_line_ends(block.data) <= most:
        yield 0, block
        return
    cuts = (np.flatnonzero(np.frombuffer(block.data, np.uint8) == _NEWLINE)[most - 1 :: most] + 1).tolist()
    start, number = 0, block.first_line
    for cut in [*cuts, len(block.data)]:
        if start < cut:
            data = block.data[start:cut]
            yield start, Block(data, number, block.offset + start, outer=block.outer, messages=block.messages)
        start, number = cut, number + most


def after(block: Block, lines: Lines) -> Block:
    """Returns the rest of a block after some lines of it, which are its first ones."""
    end, number = int(lines.ends[-1]), int(lines.numbers[-1])
    cut = block.data.find(b"\n", end) + 1 or len(block.data)
    return Block(block.data[cut:], number + 1, block.offset + cut, outer=block.outer, messages=block.messages)


def count_line_ends(data: bytes) -> int:
    """Returns the number of line ends in some bytes."""
    if (module := loaded_kernel().module) is not None:
        return int(module.count_line_ends(data))
    octets = np.frombuffer(data, np.uint8)
    # `bytes.count` takes three times as long, because it stops at each one. One step stays in the processor's cache.
    return sum(int(np.count_nonzero(octets[at : at + _STEP] == _NEWLINE)) for at in range(0, len(octets), _STEP))


def find_lines(block: Block, *, is_text: bool = False) -> Lines:
    """Returns the lines that are not blank. In text, where a delimiter may be a space or a tab, only empty ones are."""
    data = np.frombuffer(block.data, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    if not block.data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    ends = ends - ((ends > starts) & (data[ends - 1] == _RETURN))
    numbers = np.arange(block.first_line, block.first_line + len(starts), dtype=np.int64)
    filled = ends > starts
    if not is_text:
        # Most lines begin with another byte than a blank.
        filled &= data[np.minimum(starts, len(data) - 1)] > _SPACE
        for index in np.flatnonzero(~filled):
            filled[index] = bool(block.data[starts[index] : ends[index]].strip(_BLANKS))
    return Lines(starts[filled], ends[filled], numbers[filled])
