"""The lines of one object that were set aside: JSON lines, gzip, the same bytes for the same lines."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

from isal import isal_zlib

from prism_assets.kernels.blocks import LongLine
from prism_assets.kernels.inflate import Garbage


class Quarantine:
    """Collects lines with number, reason and column, compressed as they come."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._gzip = isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
        self._parts: list[bytes] = []

    def add(self, line: int, reason: str, column: str | None, content: bytes) -> None:
        """Adds a line; what is not UTF-8 is kept as base64."""
        self._write(reason, {"line": line, "reason": reason, "column": column, **_content(content)})

    def add_long(self, line: LongLine, reason: str = "line_too_long") -> None:
        """Adds the beginning of a line that is too long, and its length in bytes."""
        record = {"line": line.line, "reason": reason, "column": None, "length": line.length}
        self._write(reason, {**record, **_content(line.head)})

    def add_garbage(self, garbage: Garbage) -> None:
        """Adds bytes behind the last member: they have an offset in the object, and no line number."""
        record = {"line": None, "reason": "trailing_garbage", "column": None, "offset": garbage.offset}
        self._write("trailing_garbage", {**record, **_content(garbage.content)})

    def note(self, reason: str) -> None:
        """Makes the counts name a reason also where no line is set aside for it."""
        self.counts[reason] += 0

    def finish(self) -> bytes:
        """The whole object; there is nothing to write if no line was added."""
        return b"".join([*self._parts, self._gzip.flush()])

    def _write(self, reason: str, record: dict[str, Any]) -> None:
        self.counts[reason] += 1
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._parts.append(self._gzip.compress(text.encode()))


def _content(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
