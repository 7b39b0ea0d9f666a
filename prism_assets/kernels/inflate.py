"""Decompression in bounded pieces. What the bytes are is told by their first bytes, never by a name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import zstandard
from isal import isal_zlib

PIECE = 4 << 20
RATIO_LIMIT = 200
RATIO_FLOOR = 64 << 20

_GZIP_ERROR: Any = isal_zlib.error
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
# A run of one byte takes four bytes of zstd for 128 KiB, so this much input gives at most 64 MiB at once.
_ZSTD_STEP = 2048


class UnsoundError(Exception):
    """The object cannot be trusted as a whole; everything that could be decoded was handed out before."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the content of a gzip, zstd or plain object in pieces of about 4 MiB.

    Raises UnsoundError (`gzip_truncated`, `gzip_crc`, `ratio_exceeded`) if the object cannot be trusted; the last
    bytes before the fault may be missing then.
    """
    return _inflated(chunks, _quick_member, _ZSTD_STEP)


def salvage(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields all of an unsound object that can be decoded, to the byte before the fault. Slow."""
    try:
        yield from _inflated(chunks, _careful_member, 1)
    except UnsoundError:
        return


class _Source:
    """Compressed bytes with a look at what comes next."""

    def __init__(self, chunks: Iterable[bytes], step: int = 1 << 16) -> None:
        # Small steps: what a decoder leaves over is copied, once per member of an object of many members.
        self._chunks = (chunk[at : at + step] for chunk in chunks for at in range(0, len(chunk), step))
        self._next = b""
        self.consumed = 0

    def peek(self, count: int) -> bytes:
        while len(self._next) < count:
            more = next(self._chunks, None)
            if more is None:
                break
            self._next += more
        return self._next[:count]

    def take(self) -> bytes:
        """The next bytes; empty at the end."""
        if not self._next:
            self._next = next(self._chunks, b"")
        taken, self._next = self._next, b""
        self.consumed += len(taken)
        return taken

    def give_back(self, data: bytes) -> None:
        self._next = data + self._next
        self.consumed -= len(data)


_MemberReader = Callable[[_Source], Iterator[bytes]]


def _inflated(chunks: Iterable[bytes], member_of: _MemberReader, zstd_step: int) -> Iterator[bytes]:
    source = _Source(chunks)
    head = source.peek(4)
    if head.startswith(_GZIP):
        return _gathered(_bounded(_gzip(source, member_of), source))
    if _is_zstd(head):
        return _gathered(_bounded(_zstd(source, zstd_step), source))
    return _gathered(_plain(source))


def _plain(source: _Source) -> Iterator[bytes]:
    while data := source.take():
        yield data


def _is_zstd(head: bytes) -> bool:
    return head == _ZSTD or (head[1:] == _ZSTD_SKIPPABLE and 0x50 <= head[0] <= 0x5F)


def _gzip(source: _Source, member_of: _MemberReader) -> Iterator[bytes]:
    """Member after member; what follows the last one is ignored, as gzip(1) does."""
    while source.peek(2) == _GZIP:
        yield from member_of(source)


def _quick_member(source: _Source) -> Iterator[bytes]:
    member = isal_zlib.decompressobj(wbits=31)
    while not member.eof:
        try:
            piece = member.decompress(_more(source), PIECE)
        except _GZIP_ERROR:
            raise UnsoundError("gzip_crc") from None
        source.give_back(member.unused_data if member.eof else member.unconsumed_tail)
        yield piece


def _careful_member(source: _Source) -> Iterator[bytes]:
    """Decodes up to the very byte at fault: what could not be decoded is tried again in halves."""
    member = zlib.decompressobj(wbits=31)
    step = 1 << 14
    while not member.eof:
        data = _more(source)
        before = member.copy()
        try:
            piece = member.decompress(data[:step])
        except zlib.error:
            if step == 1:
                raise UnsoundError("gzip_crc") from None
            source.give_back(data)
            member, step = before, step // 2
            continue
        source.give_back(member.unused_data + data[step:])
        yield piece


def _more(source: _Source) -> bytes:
    data = source.take()
    if not data:
        raise UnsoundError("gzip_truncated")
    return data


def _zstd(source: _Source, step: int) -> Iterator[bytes]:
    """Frame after frame; what follows the last one is ignored."""
    decompressor = zstandard.ZstdDecompressor()
    while _is_zstd(source.peek(4)):
        frame = decompressor.decompressobj()
        while not frame.eof:
            yield from _zstd_steps(frame, _more(source), source, step)


def _zstd_steps(frame: zstandard.ZstdDecompressionObj, data: bytes, source: _Source, step: int) -> Iterator[bytes]:
    for start in range(0, len(data), step):
        stop = min(start + step, len(data))
        source.consumed -= len(data) - stop
        try:
            piece = frame.decompress(data[start:stop])
        except zstandard.ZstdError:
            raise UnsoundError("gzip_crc") from None
        source.consumed += len(data) - stop
        yield piece
        if frame.eof:
            source.give_back(frame.unused_data + data[stop:])
            return


def _bounded(pieces: Iterator[bytes], source: _Source) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        yield piece
        if total > RATIO_FLOOR and total > RATIO_LIMIT * source.consumed:
            raise UnsoundError("ratio_exceeded")


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Joins small pieces; hands out what is there before an error passes through."""
    held: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= PIECE:
                yield b"".join(held)
                held, size = [], 0
    except UnsoundError:
        yield b"".join(held)
        raise
    yield b"".join(held)
