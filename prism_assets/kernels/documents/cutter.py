"""Cuts the content of an object into records and damaged pieces, in bounded memory, and goes on after damage if it can.

Damage is a newline in a string, a wrong bracket, other text than JSON around the records, and a record or document
without an end. The piece is damaged from the first byte of its record on. If the record begins its line, reading
goes on at the next line with the same indent and a brace. Otherwise the rest of the object is one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from prism_assets.domain.streams.reasons import BAD_JSON
from prism_assets.kernels.documents.compiled import CompiledScanner
from prism_assets.kernels.documents.scanner import Held, Scan, Scanner
from prism_assets.kernels.json.blocks import LINE_LIMIT

MOST_DAMAGES = 64
"""After so many damaged pieces, the rest of an object is one."""
_SEPARATORS = b" \t\r\n,"


Scanning = Scanner | CompiledScanner


@dataclass(frozen=True)
class Piece:
    """Bytes without a record. `content` is the first 16 MiB."""

    content: bytes
    offset: int
    length: int
    reason: str = BAD_JSON

    @property
    def is_long(self) -> bool:
        """Whether `content` is only a part."""
        return self.length > LINE_LIMIT


@dataclass(frozen=True)
class Found:
    """Records found in a buffer, which begins at `offset` of the object's content."""

    buffer: bytes
    offset: int
    scan: Scan
    begun: Piece | None = None
    """The piece begun before the buffer, with the length to there."""


class Cutter:
    """Cuts one object."""

    def __init__(self, scanner: Scanning, offset: int = 0) -> None:
        self._scanner = scanner
        # No generator here has a buffer of its own: one for each damage would fill the memory.
        self._buffer = b""
        self._offset = offset
        """The place of the buffer in the object's content."""
        self._begun: Piece | None = None
        self._damages = 0
        self._lost: Piece | None = None
        """A damaged piece without a known end, up to the end of the buffer."""
        self._ending: bytes | None = None
        """Reading goes on at this newline, indent and brace; None if the rest is damaged."""
        self.settled = offset
        """The end of the last whole document, in the object's content."""

    def feed(self, piece: bytes) -> Iterator[Found | Piece]:
        """Takes the next bytes."""
        known = len(self._buffer)
        self._buffer += piece
        if self._lost is None:
            yield from self._scan(known)
            return
        lost = self._lost
        head = (lost.content + piece)[:LINE_LIMIT] if len(lost.content) < LINE_LIMIT else lost.content
        self._lost = replace(lost, content=head, length=lost.length + len(piece))
        if self._ending is None:
            self._drop(len(self._buffer))
        else:
            yield from self._go_on(max(0, known - len(self._ending) + 1))

    def finish(self) -> Iterator[Found | Piece]:
        """Ends the object."""
        while self._lost is None:
            scan = self._scanner.finish(len(self._buffer))
            yield Found(self._buffer, self._offset, scan, self._begun)
            if not scan.is_damaged:
                return
            yield from self._go_on(self._leave(len(self._buffer)))
        yield self.abandoned()
        yield _without_separators(self._lost) if self._scanner.held is Held.GAP else self._lost

    def abandoned(self) -> Found:
        """The values around the records of documents without an end."""
        return Found(b"", self._offset, Scan(rows=self._scanner.abandon()))

    def _scan(self, at: int) -> Iterator[Found | Piece]:
        """Scans the buffer from a place on, and goes on after each damage."""
        scanner = self._scanner
        while True:
            found = Found(self._buffer, self._offset, scanner.scan(self._buffer, at), self._begun)
            is_damaged, at, settled = found.scan.is_damaged, found.scan.stopped, found.scan.settled
            yield found
            del found  # its buffer is not needed beside the next one
            if settled >= 0:
                self.settled = self._offset + settled
            end = len(self._buffer)
            if not is_damaged and (scanner.held is not Held.RECORD or end - scanner.hold <= LINE_LIMIT):
                self._keep_begun()
                return
            piece = self._end_of_lost(self._leave(at))
            if piece is None:
                return
            yield piece
            del piece
            at = 0

    def _keep_begun(self) -> None:
        """Keeps the rest of the buffer for the next one."""
        scanner, end = self._scanner, len(self._buffer)
        if scanner.held is not Held.RECORD and 0 <= scanner.hold < end - LINE_LIMIT:
            start = scanner.hold
            self._begun = Piece(self._buffer[start : start + LINE_LIMIT], self._offset + start, end - start)
        scanner.let_go(end)
        self._drop(scanner.keep_from(end))
        scanner.moved(end - len(self._buffer))

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _leave(self, at: int) -> int:
        """Leaves the held piece, because it is damaged. Returns the place from which on to search for its end."""
        scanner, buffer, start = self._scanner, self._buffer, self._scanner.hold
        self._damages += 1
        self._ending = None
        if start < 0 and self._begun is not None:
            lost = replace(self._begun, length=self._offset + len(buffer) - self._begun.offset)
        else:
            lost = Piece(buffer[start : start + LINE_LIMIT], self._offset + start, len(buffer) - start)
            is_near = scanner.held is Held.RECORD or (scanner.held is Held.UNIT and at - start <= LINE_LIMIT)
            if is_near and scanner.indent is not None and self._damages <= MOST_DAMAGES:
                self._ending = b"\n" + scanner.indent + b"{"
        self._lost = lost
        if self._ending is None:
            self._drop(len(buffer))
        return start

    def _go_on(self, start: int) -> Iterator[Found | Piece]:
        """Searches for the end of the lost piece from a place on, and scans the bytes after the end."""
        piece = self._end_of_lost(start)
        if piece is not None:
            yield piece
            del piece
            yield from self._scan(0)

    def _end_of_lost(self, start: int) -> Piece | None:
        """Returns the lost piece if the end is found, and leaves the bytes after the end in the buffer."""
        if self._lost is None or self._ending is None:
            return None
        buffer = self._buffer
        found = buffer.find(self._ending, start)
        if found < 0:
            self._drop(max(0, len(buffer) - len(self._ending)))
            return None
        end = found - (buffer[found - 1 : found] == b"\r")
        length = self._lost.length - (len(buffer) - end)
        piece = replace(self._lost, content=self._lost.content[:length], length=length)
        self._lost = None
        self._drop(found + len(self._ending) - 1)
        self._scanner.resume()
        return piece


def _without_separators(gap: Piece) -> Piece:
    """Returns damage between records without the whitespace before it. A long piece keeps its first 16 MiB."""
    if gap.is_long:
        return gap
    content = gap.content.lstrip(_SEPARATORS)
    return Piece(content, gap.offset + gap.length - len(content), len(content))
