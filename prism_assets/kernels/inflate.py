"""Decompresses objects in bounded pieces. The first bytes tell the compression, never the name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import zstandard
from isal import isal_zlib

from prism_assets.domain.errors import UnsupportedContent
from prism_assets.domain.streams.reasons import BAD_CRC, RATIO_EXCEEDED, TRUNCATED
from prism_assets.kernels.foreign_formats import HEAD, check_format, checked

PIECE = 4 << 20
_NEAR = 64 << 10
"""The end of a part that is searched for the end of a line."""
GARBAGE_PIECE = 1 << 20
RATIO_LIMIT = 200
RATIO_FLOOR = 64 << 20

_GZIP_ERRORS: Any = (isal_zlib.error, zlib.error)
_GZIP = b"\x1f\x8b"
_MAGIC = 3
# The method and the flags of RFC 1952.
_DEFLATE = 8
_FHCRC, _OPTIONAL_FIELDS, _RESERVED = 2, 4 | 8 | 16, 32 | 64 | 128
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
# The rest of a bite is copied once a member, so the first bites of a member are small.
_FIRST_BITE, _BITE = 1 << 10, 1 << 16
_CAREFUL_BITE = 1 << 14
# A run of one byte takes four bytes of zstd for 128 KiB, so this much input gives at most 64 MiB at once.
_ZSTD_BITE = 2048
_ZSTD_WINDOW = 128 << 20
"""The default limit of zstd(1). Twice as much is half of the memory of a task."""
_ZSTD_HEADER = 18
"""The longest header of a frame, with its magic number (RFC 8878, 3.1.1)."""


class UnsoundError(Exception):
    """The object is damaged; all decodable content was handed out before.

    `reason` is the quarantine reason of its lines. All bytes before `offset` decode.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


@dataclass(frozen=True)
class Garbage:
    """Bytes of the object, from `offset` on, outside of any member."""

    offset: int
    content: bytes


class Inflation:
    """A gzip, zstd or plain object: its content, and then the bytes after its last member. Each can be read once.

    Content that is gzip again is inflated once more, because Firehose compresses again what CloudWatch Logs sends.
    `binary` content, for example messages of protobuf, may begin like another format.
    """

    def __init__(self, chunks: Iterable[bytes], *, binary: bool = False) -> None:
        self._source = _PeekableBytes(chunks)
        self._binary = binary
        self._inner: _PeekableBytes | None = None
        self.padding = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yields the content in pieces of about 4 MiB.

        UnsoundError (`truncated`, `bad_crc`, `ratio_exceeded`) for a damaged object; the last bytes before the fault
        may be missing. UnsupportedContent for a format that cannot be read.
        """
        outer = _compression(self._source.peek(4))
        if outer is None and not self._binary:
            check_format(self._source.peek(HEAD))
        pieces = _inflated(self._source, _quick_member, None)
        return pieces if outer is None or self._binary else self._within(pieces, outer)

    def _within(self, pieces: Iterator[bytes], outer: str) -> Iterator[bytes]:
        """Yields the content of a layer, or of the layer within it."""
        inner = _PeekableBytes(pieces)
        if not _is_gzip(inner.peek(_MAGIC)):
            yield from checked(chain([inner.rest()], pieces), outer)
            return
        self._inner = inner
        content = _bounded(_inflated(inner, _quick_member, None), self._source)
        try:
            yield from checked(content, f"gzip within {outer}")
        except UnsoundError as error:
            raise UnsoundError(error.reason, self._source.consumed) from None

    def garbage(self) -> Iterator[Garbage]:
        """Yields the bytes after the last member, in pieces of at most 1 MiB; nothing for zeros alone.

        Bytes after the last member of an inner layer come first. Their offset is the one in that layer.

        Zeros to the end are the padding of a last block: `padding` counts them. All other bytes are garbage from the
        first one on. A member after zeros is garbage, too, as for gzip(1).
        """
        for source in filter(None, (self._inner, self._source)):
            start = source.consumed
            zeros = _pass_zeros(source)
            if not source.peek(1):
                self.padding += zeros
                continue
            for content in _even(_zeros_and_rest(zeros, source), GARBAGE_PIECE):
                yield Garbage(start, content)
                start += len(content)


def salvage(chunks: Iterable[bytes], offset: int) -> Iterator[bytes]:
    """Yields all decodable content of a damaged object, to the byte before the fault. The fault lies after `offset`.

    Slow for gzip. An incomplete block of zstd (128 KiB of content) gives nothing.
    """
    source = _PeekableBytes(chunks)
    outer = _compression(source.peek(4))
    pieces = _inflated(source, _careful_member, offset)
    inner = _PeekableBytes(pieces)
    try:
        is_twice = outer is not None and _is_gzip(inner.peek(_MAGIC))
    except UnsoundError:  # within the first bytes
        yield inner.rest()
        return
    with suppress(UnsoundError):
        if is_twice:
            yield from _bounded(_inflated(inner, _careful_member, None), source)
        else:
            yield from chain([inner.rest()], pieces)


class _PeekableBytes:
    """Compressed bytes with a look ahead."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._data = memoryview(b"")
        self._at = 0
        self.consumed = 0

    def peek(self, count: int) -> bytes:
        while len(self._data) - self._at < count:
            more = next(self._chunks, None)
            if more is None:
                break
            self._data, self._at = memoryview(bytes(self._data[self._at :]) + more), 0
        return bytes(self._data[self._at : self._at + count])

    def take(self, most: int) -> memoryview:
        """The next bytes, of one chunk; empty at the end."""
        while self._at == len(self._data):
            more = next(self._chunks, None)
            if more is None:
                return memoryview(b"")
            self._data, self._at = memoryview(more), 0
        taken = self._data[self._at : self._at + most]
        self._at += len(taken)
        self.consumed += len(taken)
        return taken

    def rest(self) -> bytes:
        """The bytes that were looked at and not taken."""
        return bytes(self._data[self._at :])

    def push_back(self, count: int) -> None:
        """Puts back the last `count` of the bytes taken last."""
        self._at -= count
        self.consumed -= count


_MemberReader = Callable[[_PeekableBytes], Iterator[bytes]]


def _inflated(source: _PeekableBytes, member_of: _MemberReader, fault: int | None) -> Iterator[bytes]:
    match _compression(source.peek(4)):
        case "gzip":
            return _gathered(_bounded(_gzip(source, member_of), source))
        case "zstd":
            return _gathered(_bounded(_zstd(source, fault), source))
        case _:
            return _gathered(_plain(source))


def _compression(head: bytes) -> str | None:
    if head.startswith(_GZIP):
        return "gzip"
    return "zstd" if _is_zstd(head) else None


def _is_gzip(head: bytes) -> bool:
    """Whether a layer is gzip: two bytes alone may begin text, and the third one is the only method."""
    return head == _GZIP + bytes([_DEFLATE])


def _plain(source: _PeekableBytes) -> Iterator[memoryview]:
    while data := source.take(PIECE):
        yield data


def _is_zstd(head: bytes) -> bool:
    return head == _ZSTD or (head[1:] == _ZSTD_SKIPPABLE and 0x50 <= head[0] <= 0x5F)


def _gzip(source: _PeekableBytes, member_of: _MemberReader) -> Iterator[bytes]:
    """Member after member."""
    while source.peek(2) == _GZIP:
        yield from member_of(source)


def _quick_member(source: _PeekableBytes) -> Iterator[bytes]:
    member = _decoder(source.peek(4)).decompressobj(wbits=31)
    bite = _FIRST_BITE
    while not member.eof:
        data = _more(source, bite)
        try:
            piece = member.decompress(data, PIECE)
        except _GZIP_ERRORS:
            raise UnsoundError(BAD_CRC, source.consumed - len(data)) from None
        source.push_back(len(member.unused_data if member.eof else member.unconsumed_tail))
        bite = min(4 * bite, _BITE)
        yield piece


def _decoder(head: bytes) -> Any:
    """The decoder of a member: ISA-L, at half the time, unless the header is split and has several fields.

    ISA-L forgets the first half of a split header: it skips the first fields again, or reports a wrong checksum of the
    header. Only headers of at most one field are safe.
    """
    if len(head) < 4 or head[2] != _DEFLATE or head[3] & _RESERVED:
        return isal_zlib  # no header at all
    fields = head[3] & _OPTIONAL_FIELDS
    return zlib if head[3] & _FHCRC or fields & (fields - 1) else isal_zlib


def _careful_member(source: _PeekableBytes) -> Iterator[bytes]:
    """Decodes up to the faulty byte: a bite that cannot be decoded is tried again in halves."""
    member = zlib.decompressobj(wbits=31)
    bite = _CAREFUL_BITE
    while not member.eof:
        data = _more(source, bite)
        before = member.copy()
        try:
            piece = member.decompress(data)
        except zlib.error:
            source.push_back(len(data))
            if bite == 1:
                raise UnsoundError(BAD_CRC, source.consumed) from None
            member, bite = before, bite // 2
            continue
        source.push_back(len(member.unused_data))
        yield piece


def _more(source: _PeekableBytes, most: int) -> memoryview:
    data = source.take(most)
    if not data:
        raise UnsoundError(TRUNCATED, source.consumed)
    return data


def _zstd(source: _PeekableBytes, fault: int | None) -> Iterator[bytes]:
    """Frame after frame; after `fault` byte by byte, because a bite that fails gives nothing."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    while _is_zstd(source.peek(4)):
        _check_header(source.peek(_ZSTD_HEADER))
        frame = decompressor.decompressobj()
        while not frame.eof:
            sound = _ZSTD_BITE if fault is None else fault - source.consumed
            data = _more(source, max(1, min(sound, _ZSTD_BITE)))
            try:
                piece = frame.decompress(data)
            except zstandard.ZstdError:
                raise UnsoundError(BAD_CRC, source.consumed - len(data)) from None
            source.push_back(len(frame.unused_data))
            yield piece


def _check_header(head: bytes) -> None:
    """Raises UnsupportedContent for frames that cannot be read. The decoder reports a broken header."""
    try:
        frame = zstandard.get_frame_parameters(head)
    except zstandard.ZstdError:
        return
    if frame.window_size > _ZSTD_WINDOW:
        raise UnsupportedContent(
            f"zstd with a window of {frame.window_size >> 20} MiB is not read, as {_ZSTD_WINDOW >> 20} MiB is the "
            "most: compress the object with `zstd --long=27` or less, and write it again"
        )
    if frame.dict_id:
        raise UnsupportedContent(
            f"zstd with a dictionary, of id {frame.dict_id} here, is not read: compress the object without one, and "
            "write it again"
        )


def _bounded(pieces: Iterator[bytes], source: _PeekableBytes) -> Iterator[bytes]:
    """Passes pieces on up to the most that the bytes of a source may give: of the layer, and of the whole object."""
    total = 0
    for piece in pieces:
        total += len(piece)
        yield piece
        if total > RATIO_FLOOR and total > RATIO_LIMIT * source.consumed:
            raise UnsoundError(RATIO_EXCEEDED, source.consumed)


def _gathered(pieces: Iterator[bytes] | Iterator[memoryview]) -> Iterator[bytes]:
    """Joins small pieces and divides big ones, because lines are measured at the ends of pieces.

    A piece ends with a line where it can, so that nobody copies it once more to join lines with their beginnings. Hands
    out the gathered bytes before an error passes through.
    """
    held: list[memoryview] = []
    size = 0
    try:
        for piece in pieces:
            for start in range(0, len(piece), PIECE):
                part = memoryview(piece)[start : start + PIECE]
                size += len(part)
                if size < PIECE:
                    held.append(part)
                    continue
                end = _end_of_lines(part)
                yield b"".join([*held, part[:end]])
                held, size = [part[end:]], len(part) - end
    except UnsoundError:
        yield b"".join(held)
        raise
    yield b"".join(held)


def _end_of_lines(part: memoryview) -> int:
    """Returns the end of the last line that ends near the end of a part, or the end of the part."""
    start = max(0, len(part) - _NEAR)
    place = bytes(part[start:]).rfind(b"\n")
    return start + place + 1 if place >= 0 else len(part)


def _pass_zeros(source: _PeekableBytes) -> int:
    """Takes the zeros that come next, and counts them."""
    zeros = 0
    while data := source.take(PIECE):
        rest = len(bytes(data).lstrip(b"\0"))
        zeros += len(data) - rest
        if rest:
            source.push_back(rest)
            break
    return zeros


def _zeros_and_rest(zeros: int, source: _PeekableBytes) -> Iterator[bytes]:
    for start in range(0, zeros, PIECE):
        yield bytes(min(PIECE, zeros - start))
    while data := source.take(PIECE):
        yield bytes(data)


def _even(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The bytes in pieces of one size, except the last one. The pieces do not depend on the reads of the object."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
