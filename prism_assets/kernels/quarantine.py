"""The lines of one object that were set aside: JSON lines, gzip, the same bytes for the same lines.

They are held in memory, and on disk as soon as they are many. Of a table with sensitive columns those are left out of
lines that were read; other lines are not held at all, only where they stand. Nor are lines that cannot be read, where
they may be those of an erasure. Of a line that lost sensitive values the record tells which erasures it was judged by
before: nobody can judge by them what is left of it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from isal import isal_zlib

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.reasons import TRAILING_GARBAGE
from prism_assets.kernels.inflate import Garbage
from prism_assets.kernels.json.blanking import Blanking
from prism_assets.kernels.json.blocks import LongLine, Original
from prism_assets.kernels.scratch import mapped, new_file, telling

UNMATCHED = "unmatched_erasures"
"""The field of a record for the ids of erasures that its line does not match."""

_GZIP = 31
_PIECE = 1 << 20
"""Bytes that are unpacked at once."""


class PackedLines:
    """Records as JSON lines, compressed as they come: in memory, and on disk beyond so many bytes of `memory`."""

    def __init__(self, memory: int) -> None:
        self._gzip = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _GZIP)
        self._memory = memory
        self._parts: list[bytes] = []
        self._held = 0
        self._file: IO[bytes] | None = None

    def add(self, record: Mapping[str, Any]) -> None:
        """Takes one more line."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._keep(self._gzip.compress(line.encode()))

    def finish(self) -> memoryview:
        """The whole object."""
        self._keep(self._gzip.flush())
        if self._file is None:
            return memoryview(b"".join(self._parts))
        self._empty_memory(self._file)
        return memoryview(mapped(self._file)).cast("B")

    def close(self) -> None:
        """Lets go of everything."""
        self._parts.clear()
        if self._file:
            self._file.close()

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)
        if self._held > self._memory:
            self._file = self._file or new_file()
            self._empty_memory(self._file)

    def _empty_memory(self, file: IO[bytes]) -> None:
        with telling():
            file.writelines(self._parts)
        self._parts.clear()
        self._held = 0


def unpacked(chunks: Iterable[bytes], key: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The records of an object with quarantined lines, each with its bytes; hardly more than one is in memory.

    InvariantBroken if it is damaged.
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
    """Collects lines with number, reason and column, compressed as they come.

    `erasures` are the ids of those by which every line that is added was judged.
    """

    def __init__(self, memory: int, blanking: Blanking, url: str, *, erasures: Sequence[int] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self._packed = PackedLines(memory)
        self._blanking = blanking
        self._url = url
        self._withholds = bool(erasures) or blanking.is_needed
        self._judged_by = {UNMATCHED: list(erasures)} if erasures and blanking.is_needed else {}

    def close(self) -> None:
        """Lets go of everything."""
        self._packed.close()

    def add(self, line: int, reason: str, column: str | None, original: Original, *, withheld: bool = False) -> None:
        """Adds a line; what is not UTF-8 is kept as base64. Of one that is `withheld` only the place is."""
        kept = None if withheld else self._blanking.kept(original.content, reason)
        record = {"line": line, "reason": reason, "column": column}
        place = self._place(original.offset, original.length)
        self._write(reason, record | (place if kept is None else _content(kept) | self._judged_by))

    def add_unread(self, line: int, reason: str, original: Original) -> None:
        """Adds a line that nobody could read, or of an object that is set aside as a whole."""
        record = {"line": line, "reason": reason, "column": None}
        self._write(reason, record | self._unread(original.content, original.offset, original.length))

    def add_long(self, line: LongLine, reason: str | None = None) -> None:
        """Adds the beginning of a line that is too long, and its length in bytes."""
        reason = reason or line.reason
        record = {"line": line.line, "reason": reason, "column": None, "length": line.length}
        self._write(reason, record | self._unread(line.head, line.offset, line.length))

    def add_garbage(self, garbage: Garbage) -> None:
        """Adds bytes behind the last member: they have an offset in the object, and no line number."""
        record = {"line": None, "reason": TRAILING_GARBAGE, "column": None, "offset": garbage.offset}
        self._write(TRAILING_GARBAGE, record | self._unread(garbage.content, garbage.offset, len(garbage.content)))

    def note(self, reason: str) -> None:
        """Makes the counts name a reason also where no line is set aside for it."""
        self.counts[reason] += 0

    def finish(self) -> memoryview:
        """The whole object; there is nothing to write if no line was added."""
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
