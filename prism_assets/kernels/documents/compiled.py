"""The compiled scanner of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prism_assets.domain.streams.documents import OuterKey, RecordSteps
from prism_assets.kernels.compiled import integers, kernel_panics
from prism_assets.kernels.documents.scanner import Held, Row, Scan


class CompiledScanner:
    """Gives the same results as the scanner in Python. After a panic of the kernel any call raises KernelFailed."""

    def __init__(self, module: Any, steps: RecordSteps, outer: Sequence[OuterKey] = ()) -> None:
        with kernel_panics():
            self._scanner = module.DocumentScanner(list(steps), [(key.step, key.key) for key in outer])

    @property
    def held(self) -> Held:
        """The kind of the held piece."""
        with kernel_panics():
            return Held(self._scanner.held)

    @property
    def hold(self) -> int:
        """The place of the held piece in the buffer, or -1 if it begins before the buffer."""
        with kernel_panics():
            return int(self._scanner.hold)

    @property
    def indent(self) -> bytes | None:
        """The whitespace before the held piece if nothing else stands before it on its line."""
        with kernel_panics():
            indent: bytes | None = self._scanner.indent
        return indent

    def scan(self, buffer: bytes, at: int) -> Scan:
        """Scans a buffer from a place to its end, or to damage."""
        with kernel_panics():
            return _scan_of(self._scanner.scan(buffer, at))

    def finish(self, end: int) -> Scan:
        """Judges the end of the content."""
        with kernel_panics():
            return replace(_scan_of(self._scanner.finish(end)), lines=None)

    def keep_from(self, end: int) -> int:
        """Returns the first place of the buffer that the next one must have."""
        with kernel_panics():
            return int(self._scanner.keep_from(end))

    def let_go(self, end: int) -> None:
        """Forgets beginnings that lie too far back."""
        with kernel_panics():
            self._scanner.let_go(end)

    def moved(self, count: int) -> None:
        """The caller dropped bytes from the beginning of the buffer."""
        with kernel_panics():
            self._scanner.moved(count)

    def resume(self) -> None:
        """Goes on after damage."""
        with kernel_panics():
            self._scanner.resume()

    def abandon(self) -> list[Row]:
        """Returns the rows of objects that do not end."""
        with kernel_panics():
            return [(step, tuple(values)) for step, values in self._scanner.abandon()]


def _scan_of(found: Any) -> Scan:
    # Arrays, where the scanner in Python fills lists.
    starts: Any = integers(found.starts)
    ends: Any = integers(found.ends)
    flags: Any = integers(found.flags)
    return Scan(
        starts=starts,
        ends=ends,
        flags=flags,
        rows=[(step, tuple(values)) for step, values in found.rows],
        begun=found.begun,
        settled=found.settled,
        is_damaged=found.is_damaged,
        stopped=found.stopped,
        lines=found.lines,
    )
