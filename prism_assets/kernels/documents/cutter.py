"""Cuts the content of an object into records and damaged pieces, in bounded memory, and goes on after damage if it can.

Damage is a newline in a string, a wrong bracket, something around the records that is no JSON, and a record or document
that does not end. The piece is damaged from the first byte of its record on. If the record begins its line, reading
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
    """Bytes of an object that are no record. `content` is the first 16 MiB of them."""

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
    """The piece that begins before the buffer, with the length to there."""


class Cutter:
    """Cuts one object."""

    def __init__(self, scanner: Scanning, offset: int = 0) -> None:
        self._scanner = scanner
        self._kept = b""
        self._offset = offset
        """The place of the kept bytes in the object's content."""
        self._begun: Piece | None = None
        self._damages = 0
        self._lost: Piece | None = None
        """A damaged piece whose end is searched for."""
        self._ending: bytes | None = None
        """The newline, the indent and the brace at which reading goes on; None if the rest is damaged."""
        self.settled = offset
        """The end of the last document that ended, in the object's content."""

    def feed(self, piece: bytes) -> Iterator[Found | Piece]:
        """Takes the next bytes."""
        if self._lost is None:
            yield from self._scan(self._kept + piece, len(self._kept))
            return
        yield from self._search(self._lost, piece)

    def finish(self) -> Iterator[Found | Piece]:
        """Ends the object."""
        while self._lost is None:
            scan = self._scanner.finish(len(self._kept))
            yield Found(self._kept, self._offset, scan, self._begun)
            if not scan.is_damaged:
                return
            yield from self._leave(self._kept, len(self._kept))
        yield self.abandoned()
        yield self._lost

    def abandoned(self) -> Found:
        """The values around the records of documents that do not end."""
        return Found(b"", self._offset, Scan(rows=self._scanner.abandon()))

    def _scan(self, buffer: bytes, at: int) -> Iterator[Found | Piece]:
        scanner = self._scanner
        scan = scanner.scan(buffer, at)
        yield Found(buffer, self._offset, scan, self._begun)
        if scan.settled >= 0:
            self.settled = self._offset + scan.settled
        end = len(buffer)
        if scan.is_damaged or (scanner.held is Held.RECORD and end - scanner.hold > LINE_LIMIT):
            yield from self._leave(buffer, scan.stopped)
            return
        if scanner.held is not Held.RECORD and 0 <= scanner.hold < end - LINE_LIMIT:
            start = scanner.hold
            self._begun = Piece(buffer[start : start + LINE_LIMIT], self._offset + start, end - start)
        scanner.let_go(end)
        self._keep(buffer, scanner.keep_from(end))
        scanner.moved(end - len(self._kept))

    def _keep(self, buffer: bytes, start: int) -> None:
        self._kept = buffer[start:]
        self._offset += start

    def _leave(self, buffer: bytes, at: int) -> Iterator[Found | Piece]:
        """Leaves the held piece, because it is damaged, and searches for the place to go on."""
        scanner = self._scanner
        self._damages += 1
        self._ending = None
        if scanner.hold < 0 and self._begun is not None:
            lost = replace(self._begun, length=self._offset + len(buffer) - self._begun.offset)
        else:
            start = scanner.hold
            lost = Piece(buffer[start : start + LINE_LIMIT], self._offset + start, len(buffer) - start)
            is_near = scanner.held is Held.RECORD or (scanner.held is Held.UNIT and at - start <= LINE_LIMIT)
            if is_near and scanner.indent is not None and self._damages <= MOST_DAMAGES:
                self._ending = b"\n" + scanner.indent + b"{"
        if scanner.held is Held.GAP:
            content = lost.content.lstrip(_SEPARATORS)
            passed = len(lost.content) - len(content)
            lost = Piece(content, lost.offset + passed, lost.length - passed)
        if self._ending is not None:
            start = scanner.hold
            self._offset += start
            yield from self._go_on(buffer[start:], 0, lost)
        else:
            self._kept, self._offset, self._lost = b"", self._offset + len(buffer), lost

    def _search(self, lost: Piece, piece: bytes) -> Iterator[Found | Piece]:
        head = (lost.content + piece)[:LINE_LIMIT] if len(lost.content) < LINE_LIMIT else lost.content
        lost = replace(lost, content=head, length=lost.length + len(piece))
        if self._ending is None:
            self._offset += len(piece)
            self._lost = lost
        else:
            yield from self._go_on(self._kept + piece, len(self._kept), lost)

    def _go_on(self, buffer: bytes, known: int, lost: Piece) -> Iterator[Found | Piece]:
        """Searches the buffer, of which `known` bytes were searched, for the end of a piece that reaches to its end."""
        assert self._ending is not None
        found = buffer.find(self._ending, max(0, known - len(self._ending) + 1))
        if found < 0:
            self._lost = lost
            self._keep(buffer, max(0, len(buffer) - len(self._ending)))
            return
        end = found - (buffer[found - 1 : found] == b"\r")
        length = lost.length - (len(buffer) - end)
        self._lost = None
        yield replace(lost, content=lost.content[:length], length=length)
        self._keep(buffer, found + len(self._ending) - 1)
        self._scanner.resume()
        kept, self._kept = self._kept, b""
        yield from self._scan(kept, 0)
