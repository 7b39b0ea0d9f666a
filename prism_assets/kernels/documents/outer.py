"""Values around the records. They may stand after the array, so they are looked for before the records are read.

The first scan leaves a row of values for each object that holds a record, by its step on the way to the records.
Objects of one step do not overlap. So the second scan takes the rows of a step in their order.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from prism_assets.domain.streams.documents import OuterKey, OuterSteps, RecordSteps, outer_key
from prism_assets.domain.streams.reasons import DUPLICATE_KEY, LINE_TOO_LONG
from prism_assets.domain.streams.sources import Outer
from prism_assets.kernels.documents.scanner import Broken, Row
from prism_assets.kernels.json.picks import value_inside
from prism_assets.kernels.json.rows import NOTHING, RejectedError, Value, read_value
from prism_assets.kernels.scratch import disk_errors, new_file

_MEMORY = 64 << 20
_ROWS_MEMORY = 16 << 20
_ROW_COST = 200
_BATCH = 1_000
_PIECE = 4 << 20
_REASONS = {Broken.DOUBLED: DUPLICATE_KEY, Broken.TOO_LONG: LINE_TOO_LONG}

_Values = tuple[bytes | Broken | None, ...]


class OuterRows:
    """The values around the records of one object, for some sources."""

    def __init__(self, steps: RecordSteps, sources: Sequence[Outer]) -> None:
        places = [_place(steps, source) for source in sources]
        self.keys: list[OuterKey] = sorted({place[0] for place in places if place})
        self._sources: dict[int, list[tuple[int, int, tuple[str | int, ...]]]] = {}
        for number, found in enumerate(places):
            if found is None:
                continue
            key, inside = found
            place = [other.key for other in self.keys if other.step == key.step].index(key.key)
            self._sources.setdefault(key.step, []).append((number, place, inside))
        self._queues = {step: _Rows() for step in self._sources}
        self._reasons: dict[int, str | None] = dict.fromkeys(self._sources)
        self._current: list[Value] = [NOTHING] * len(sources)

    def close(self) -> None:
        """Releases files."""
        for rows in self._queues.values():
            rows.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Takes rows of the first scan."""
        for step, values in rows:
            self._queues[step].add(values)

    def begin(self, step: int) -> None:
        """The second scan reached the first record of the next object of a step."""
        values = self._queues[step].next()
        self._reasons[step] = None
        read: dict[int, Value] = {}
        for number, place, inside in self._sources[step]:
            try:
                if place not in read:
                    read[place] = _value(values[place])
                self._current[number] = value_inside(read[place], inside, "")
            except RejectedError as error:
                self._current[number] = NOTHING
                self._reasons[step] = self._reasons[step] or error.reason

    @property
    def values(self) -> tuple[Value, ...]:
        """The values around the current record, by source."""
        return tuple(self._current)

    @property
    def reason(self) -> str | None:
        """Why the current records are quarantined; None for sound values."""
        return next((self._reasons[step] for step in sorted(self._reasons) if self._reasons[step]), None)


def _place(steps: RecordSteps, source: Outer) -> tuple[OuterKey, OuterSteps] | None:
    """Returns where a source leaves the way; None if documents of an earlier format have no such place."""
    try:
        return outer_key(steps, source.steps)
    except ValueError:
        return None


def _value(found: bytes | Broken | None) -> Value:
    if found is None:
        return NOTHING
    if isinstance(found, int):
        raise RejectedError(_REASONS[Broken(found)])
    return read_value(found)


class _Rows:
    """Rows in their order, in memory, and on disk beyond a limit."""

    def __init__(self) -> None:
        self._held: deque[_Values] = deque()
        self._size = 0
        self._file: IO[bytes] | None = None
        self._read = 0
        self._on_disk = 0

    def close(self) -> None:
        if self._file:
            self._file.close()

    def add(self, values: _Values) -> None:
        size = _size(values)
        if not self._on_disk and self._size + size <= _ROWS_MEMORY:
            self._held.append(values)
            self._size += size
            return
        self._file = self._file or new_file()
        with disk_errors():
            self._file.seek(0, os.SEEK_END)
            pickle.dump(values, self._file)
        self._on_disk += 1

    def next(self) -> _Values:
        if not self._held:
            self._read_batch()
        values = self._held.popleft()
        self._size -= _size(values)
        return values

    def _read_batch(self) -> None:
        assert self._file is not None
        self._size = 0
        with disk_errors():
            self._file.seek(self._read)
            for _ in range(min(self._on_disk, _BATCH)):
                values: _Values = pickle.load(self._file)
                self._held.append(values)
                self._size += _size(values)
                self._on_disk -= 1
                if self._size > _ROWS_MEMORY:
                    break
            self._read = self._file.tell()
            if not self._on_disk:
                self._file.truncate(0)
                self._read = 0


def _size(values: _Values) -> int:
    """Returns the bytes that a row takes in memory, roughly."""
    return _ROW_COST + sum(len(value) for value in values if isinstance(value, bytes))


class HeldBytes:
    """The bytes between the two scans: in memory, and on disk once there are more than 64 MiB."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._file: IO[bytes] | None = None
        self._read = 0

    def close(self) -> None:
        """Releases the file."""
        if self._file:
            self._file.close()

    def add(self, piece: bytes) -> None:
        """Takes the next bytes."""
        self._size += len(piece)
        if self._file is None and self._size <= _MEMORY:
            self._pieces.append(piece)
            return
        with disk_errors():
            if self._file is None:
                self._file = new_file()
                self._file.writelines(self._pieces)
                self._pieces.clear()
            self._file.seek(0, os.SEEK_END)
            self._file.write(piece)

    def take(self, count: int) -> Iterator[bytes]:
        """Yields the first `count` bytes, and forgets them."""
        while count > 0:
            piece = self._next(min(count, _PIECE))
            self._size -= len(piece)
            count -= len(piece)
            yield piece

    def _next(self, most: int) -> bytes:
        if self._file is not None:
            with disk_errors():
                self._file.seek(self._read)
                piece = self._file.read(most)
            self._read += len(piece)
            return piece
        piece = self._pieces.popleft()
        if len(piece) > most:
            self._pieces.appendleft(piece[most:])
        return piece[:most]

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._size
