"""Collects the quarantined lines of one object as JSON lines in gzip. Equal lines give equal bytes.

Lines are in memory, and on disk beyond a limit. For a table with sensitive columns, a line that was read is kept
without the sensitive values; for any other line only its place is kept, as for an unreadable line that an erasure may
match. A line without its sensitive values cannot be judged by a predicate again, so its record says which erasures it
does not match.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import orjson
from isal import isal_zlib

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.streams.reasons import TRAILING_GARBAGE
from prism_assets.kernels.inflate import Garbage
from prism_assets.kernels.json.blanking import Blanking
from prism_assets.kernels.json.blocks import LongLine, Original
from prism_assets.kernels.scratch import disk_errors, mapped, new_file

UNMATCHED = "unmatched_erasures"
"""The field of a record with the ids of erasures that the line does not match."""

_GZIP = 31
_PIECE = 1 << 20
"""Bytes to unpack at once."""
_PORTION = 1 << 16


class PackedLines:
    """Records as compressed JSON lines, in memory, and on disk beyond `memory` bytes.

    Lines are compressed in portions of `_PORTION` bytes, because each call has a fixed price.
    """

    def __init__(self, memory: int) -> None:
        self._gzip = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _GZIP)
        self._memory = memory
        self._portion = bytearray()
        self._parts: list[bytes] = []
        self._held = 0
        self._file: IO[bytes] | None = None

    def add(self, record: Mapping[str, Any]) -> None:
        """Adds a line."""
        self._portion += orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        if len(self._portion) >= _PORTION:
            self._compress()

    def finish(self) -> memoryview:
        """The whole object."""
        self._compress()
        self._keep(self._gzip.flush())
        if self._file is None:
            return memoryview(b"".join(self._parts))
        self._empty_memory(self._file)
        return memoryview(mapped(self._file)).cast("B")

    def close(self) -> None:
        """Releases memory and files."""
        self._parts.clear()
        self._portion.clear()
        if self._file:
            self._file.close()

    def _compress(self) -> None:
        self._keep(self._gzip.compress(self._portion))
        self._portion.clear()

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)
        if self._held > self._memory:
            self._file = self._file or new_file()
            self._empty_memory(self._file)

    def _empty_memory(self, file: IO[bytes]) -> None:
        with disk_errors():
            file.writelines(self._parts)
        self._parts.clear()
        self._held = 0


def unpacked(chunks: Iterable[bytes], key: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields the records of an object with quarantined lines, each with its length. About one is in memory.

    InvariantBroken if the object is damaged.
    """
    try:
        for line in _lines(chunks):
            yield json.loads(line), len(line)
    except (zlib.error, ValueError):
        raise InvariantBroken(f"{key} is damaged: remove its lines from quarantine, and repeat") from None


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    gzip, begun = zlib.decompressobj(_GZIP), b""
    for chunk in chunks:
        while chunk and not gzip.eof:
            *lines, begun = (begun + gzip.decompress(chunk, _PIECE)).split(b"\n")
            yield from lines
            chunk = gzip.unconsumed_tail
    if not gzip.eof:
        raise zlib.error
    if begun:
        yield begun


class Quarantine:
    """Collects lines with number, reason and column. All lines were judged by the erasures with the ids `erasures`."""

    def __init__(self, memory: int, blanking: Blanking, url: str, *, erasures: Sequence[int] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self._packed = PackedLines(memory)
        self._blanking = blanking
        self._url = url
        self._withholds = bool(erasures) or blanking.is_needed
        self._judged_by = {UNMATCHED: list(erasures)} if erasures and blanking.is_needed else {}

    def close(self) -> None:
        """Releases memory and files."""
        self._packed.close()

    def add(self, line: int, reason: str, column: str | None, original: Original, *, withheld: bool = False) -> None:
        """Adds a line, as base64 if it is not UTF-8. Of a `withheld` line only the place is kept."""
        kept = None if withheld else self._blanking.kept(original.content, reason)
        record = {"line": line, "reason": reason, "column": column}
        place = self._place(original.offset, original.length)
        self._write(reason, record | (place if kept is None else _content(kept) | self._judged_by))

    def add_unread(self, line: int, reason: str, original: Original) -> None:
        """Adds an unreadable line, or a line of an object that is set aside as a whole."""
        record = {"line": line, "reason": reason, "column": None}
        self._write(reason, record | self._unread(original.content, original.offset, original.length))

    def add_long(self, line: LongLine, reason: str | None = None) -> None:
        """Adds the beginning of a line over the limit, and the length of the line in bytes."""
        reason = reason or line.reason
        record = {"line": line.line, "reason": reason, "column": None, "length": line.length}
        self._write(reason, record | self._unread(line.head, line.offset, line.length))

    def add_garbage(self, garbage: Garbage) -> None:
        """Adds bytes after the last member: they have an offset in the object, and no line number."""
        record = {"line": None, "reason": TRAILING_GARBAGE, "column": None, "offset": garbage.offset}
        self._write(TRAILING_GARBAGE, record | self._unread(garbage.content, garbage.offset, len(garbage.content)))

    def note(self, reason: str) -> None:
        """Adds a reason to the counts without a line."""
        self.counts[reason] += 0

    def finish(self) -> memoryview:
        """The whole object. Call it only if a line was added."""
        return self._packed.finish()

    def _unread(self, content: bytes, offset: int, length: int) -> dict[str, Any]:
        return self._place(offset, length) if self._withholds else _content(content)

    def _place(self, offset: int, length: int) -> dict[str, Any]:
        return {"object": self._url, "offset": offset, "length": length}

    def _write(self, reason: str, record: dict[str, Any]) -> None:
        self.counts[reason] += 1
        self._packed.add(record)


def _content(content: bytes) -> dict[str, Any]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
