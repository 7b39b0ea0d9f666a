"""Decompression in bounded pieces. What the bytes are is told by their first bytes, never by a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import zstandard
from isal import isal_zlib

PIECE = 4 << 20
RATIO_LIMIT = 200
RATIO_FLOOR = 64 << 20

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

    Raises UnsoundError (`gzip_truncated`, `gzip_crc`, `ratio_exceeded`) after the last piece that could be decoded.
    """
    source = _Source(chunks)
    head = source.peek(4)
    if head.startswith(_GZIP):
        return _gathered(_bounded(_gzip(source), source))
    if _is_zstd(head):
        return _gathered(_bounded(_zstd(source), source))
    return _plain(source)


class _Source:
    """Compressed bytes with a look at what comes next."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
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
            self._next = next((chunk for chunk in self._chunks if chunk), b"")
        taken, self._next = self._next, b""
        self.consumed += len(taken)
        return taken

    def give_back(self, data: bytes) -> None:
        self._next = data + self._next
        self.consumed -= len(data)


def _plain(source: _Source) -> Iterator[bytes]:
    while data := source.take():
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE] if len(data) > PIECE else data


def _is_zstd(head: bytes) -> bool:
    return head == _ZSTD or (head[1:] == _ZSTD_SKIPPABLE and 0x50 <= head[0] <= 0x5F)


def _gzip(source: _Source) -> Iterator[bytes]:
    """Member after member; what follows the last one is ignored, as gzip(1) does."""
    while source.peek(2) == _GZIP:
        member = isal_zlib.decompressobj(wbits=31)
        while not member.eof:
            data = source.take()
            if not data:
                raise UnsoundError("gzip_truncated")
            try:
                piece = member.decompress(data, PIECE)
            except isal_zlib.error:
                raise UnsoundError("gzip_crc") from None
            source.give_back(member.unused_data if member.eof else member.unconsumed_tail)
            yield piece


def _zstd(source: _Source) -> Iterator[bytes]:
    """Frame after frame; what follows the last one is ignored."""
    decompressor = zstandard.ZstdDecompressor()
    while _is_zstd(source.peek(4)):
        frame = decompressor.decompressobj()
        while not frame.eof:
            data = source.take()
            if not data:
                raise UnsoundError("gzip_truncated")
            yield from _zstd_steps(frame, data, source)


def _zstd_steps(frame: zstandard.ZstdDecompressionObj, data: bytes, source: _Source) -> Iterator[bytes]:
    for start in range(0, len(data), _ZSTD_STEP):
        stop = start + _ZSTD_STEP
        source.consumed -= len(data[stop:])
        try:
            piece = frame.decompress(data[start:stop])
        except zstandard.ZstdError:
            raise UnsoundError("gzip_crc") from None
        source.consumed += len(data[stop:])
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
