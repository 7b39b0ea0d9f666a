"""The compiled scanner of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from prism_assets.domain.streams.documents import OuterKey, RecordSteps
from prism_assets.kernels.documents.scanner import Held, Row, Scan
from prism_assets.kernels.json.compiled import KernelFailed


class CompiledScanner:
    """Gives the same results as the scanner in Python. After a panic of the kernel any call raises KernelFailed."""

    def __init__(self, module: Any, steps: RecordSteps, outer: Sequence[OuterKey] = ()) -> None:
        with _panics():
            self._scanner = module.DocumentScanner(list(steps), [(key.step, key.key) for key in outer])

    @property
    def held(self) -> Held:
        """The kind of the held piece."""
        with _panics():
            return Held(self._scanner.held)

    @property
    def hold(self) -> int:
        """The place of the held piece in the buffer, or -1 if it begins before the buffer."""
        with _panics():
            return int(self._scanner.hold)

    @property
    def indent(self) -> bytes | None:
        """The whitespace before the held piece if nothing else stands before it on its line."""
        with _panics():
            indent: bytes | None = self._scanner.indent
        return indent

    def scan(self, buffer: bytes, at: int) -> Scan:
        """Scans a buffer from a place to its end, or to damage."""
        with _panics():
            return _scan_of(self._scanner.scan(buffer, at))

    def finish(self, end: int) -> Scan:
        """Judges the end of the content."""
        with _panics():
            return replace(_scan_of(self._scanner.finish(end)), lines=None)

    def keep_from(self, end: int) -> int:
        """Returns the first place of the buffer that the next one must have."""
        with _panics():
            return int(self._scanner.keep_from(end))

    def let_go(self, end: int) -> None:
        """Forgets beginnings that lie too far back."""
        with _panics():
            self._scanner.let_go(end)

    def moved(self, count: int) -> None:
        """The caller dropped bytes from the beginning of the buffer."""
        with _panics():
            self._scanner.moved(count)

    def resume(self) -> None:
        """Goes on after damage."""
        with _panics():
            self._scanner.resume()

    def abandon(self) -> list[Row]:
        """Returns the rows of objects that do not end."""
        with _panics():
            return [(step, tuple(values)) for step, values in self._scanner.abandon()]


@contextmanager
def _panics() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise KernelFailed(str(error)) from error


def _scan_of(found: Any) -> Scan:
    return Scan(
        starts=_integers(found.starts),
        ends=_integers(found.ends),
        flags=_integers(found.flags),
        rows=[(step, tuple(values)) for step, values in found.rows],
        begun=found.begun,
        settled=found.settled,
        is_damaged=found.is_damaged,
        stopped=found.stopped,
        lines=found.lines,
    )


def _integers(array: Any) -> Any:
    return np.asarray(pa.array(array).to_numpy(), np.int64)
