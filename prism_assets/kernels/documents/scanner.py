"""Finds the records of documents, byte by byte. The compiled scanner must agree with this one.

A scanner knows brackets, strings, and the keys on the way to the records. It judges no record: readers of lines do. It
looks at a buffer once, from a place on, and goes on in the next buffer. The caller keeps the bytes from `keep_from` on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

from prism_assets.domain.streams.documents import OuterKey, RecordSteps
from prism_assets.kernels.json.blocks import LINE_LIMIT

DEEPEST = 1 << 20
"""Deeper brackets are damage, so that no document fills the memory with brackets."""
LONGEST_INDENT = 1 << 10
LONGEST_OUTER = 1 << 20
"""A longer value of an outer key is not used, as each record has a copy of it."""
_QUOTE, _BACKSLASH, _NEWLINE, _COMMA, _COLON = b'"\\\n,:'
_OPEN_OBJECT, _OPEN_ARRAY, _CLOSE_OBJECT, _CLOSE_ARRAY = b"{[}]"
_OPENING_OF = {_CLOSE_OBJECT: _OPEN_OBJECT, _CLOSE_ARRAY: _OPEN_ARRAY}
_BRACKET_OR_QUOTE = re.compile(rb'["{}\[\]]')
_END_IN_STRING = re.compile(rb'["\\\n]')
_END_OF_BARE = re.compile(rb'[ \t\r\n,\]}\[{"]')
_BLANKS = b" \t\r"


class Flag(IntEnum):
    """The fate of a piece."""

    RECORD = 0
    """A reader of lines judges it."""
    NO_RECORDS = 1
    """A document, or an element, without an array of records."""
    DOUBLED = 2
    """A record below the second occurrence of a key on the way."""


class Broken(IntEnum):
    """A value of an outer key that cannot be used."""

    DOUBLED = 1
    TOO_LONG = 2


class Held(IntEnum):
    """The kind of piece whose first byte the caller still needs."""

    GAP = 0
    """Bytes after the last record."""
    UNIT = 1
    """A document, or an element on the way, whose array of records was not reached yet."""
    RECORD = 2


class _State(Enum):
    VALUE = auto()
    KEY = auto()
    IN_KEY = auto()
    COLON = auto()
    INSIDE = auto()
    """Inside of a value."""
    BARE = auto()
    """Inside of a number, a word, or something else without quotes and brackets."""


class _Purpose(Enum):
    SKIP = auto()
    RECORD = auto()
    UNIT = auto()
    """Pass over the rest of a unit without records."""
    OUTER = auto()
    NULL = auto()
    """No record if the value is null, otherwise a unit without records."""


@dataclass
class _Frame:
    """An array or object on the way. `step` is its place there, -1 for the sequence of documents."""

    step: int
    is_object: bool
    is_doubled: bool
    values: list[bytes | Broken | None]
    was_seen: bool = False
    has_record: bool = False


Row = tuple[int, tuple[bytes | Broken | None, ...]]
"""The step of an object with records, and the values of its outer keys; None for a missing one."""


@dataclass
class Scan:
    """The result of one buffer. Positions are places in the buffer; a start of -1 lies before it."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    """Rows of outer values, in the order in which their objects end."""
    begun: list[tuple[int, int]] = field(default_factory=list)
    """For the first record of each object with outer keys: its place among the pieces, and the object's step."""
    settled: int = -1
    """The end of the last document that ended, or -1."""
    is_damaged: bool = False
    stopped: int = 0
    """The end of the buffer, or the place of the damage."""
    lines: bytes | None = None
    """The records as lines, with blank lines for other pieces; None if the scanner makes none."""


class Scanner:
    """Scans the content of one object. `outer` are the sorted keys whose values are wanted."""

    def __init__(self, steps: RecordSteps, outer: Sequence[OuterKey] = ()) -> None:
        self._steps = steps
        self._first_key = next((place for place, step in enumerate(steps) if step is not None), -1)
        self._slots_of = [[key.key for key in outer if key.step == step] for step in range(len(steps))]
        self._frames = [_Frame(-1, False, False, [])]
        self._brackets = bytearray()
        self._state = _State.VALUE
        self._purpose = _Purpose.SKIP
        self._flag = Flag.RECORD
        self._slot = 0
        self._in_string = self._is_escaped = False
        self._target: int | None = None
        self._is_second = False
        self._token = -1
        self._is_own_line = True
        self._indent = bytearray()
        self._depth = 1
        self.held = Held.GAP
        self.hold = 0
        """The place of the held piece in the buffer, or -1 if it begins before the buffer."""
        self.indent: bytes | None = b""
        """The whitespace before the held piece if nothing else stands before it on its line."""

    def keep_from(self, end: int) -> int:
        """Returns the first place of the buffer that the next one must have; `end` for none."""
        return min(place if place >= 0 else end for place in (self.hold, self._token))

    def moved(self, count: int) -> None:
        """The caller dropped `count` bytes from the beginning of the buffer."""
        self.hold -= count if self.hold >= 0 else 0
        self._token -= count if self._token >= 0 else 0

    def let_go(self, end: int) -> None:
        """Forgets beginnings that lie too far back, except for records."""
        if self.held is not Held.RECORD and end - self.hold > LINE_LIMIT:
            self.hold = -1
        if end - self._token > LINE_LIMIT:
            self._token = -1

    def resume(self) -> None:
        """Goes on after damage: the next buffer begins with a value in the place of the held one, after its indent."""
        del self._frames[self._depth :]
        self.held, self.hold = Held.GAP, 0
        self._brackets.clear()
        self._in_string = self._is_escaped = False
        self._state, self._token = _State.VALUE, -1
        self._is_own_line, self._indent = True, bytearray(self.indent or b"")

    def abandon(self) -> list[Row]:
        """Returns the rows of objects that do not end."""
        return [row for frame in reversed(self._frames) for row in _row(frame)]

    def finish(self, end: int) -> Scan:
        """Judges the end of the content: all documents must have ended."""
        scan = Scan()
        if self._state is _State.BARE and len(self._frames) == 1 and self._purpose is _Purpose.RECORD:
            self._end_value(scan, end)
        scan.is_damaged = scan.is_damaged or len(self._frames) > 1 or self._state is not _State.VALUE
        return scan

    def scan(self, buffer: bytes, at: int) -> Scan:
        """Scans a buffer from a place to its end, or to damage."""
        scan = Scan()
        step = {
            _State.VALUE: self._value,
            _State.KEY: self._key,
            _State.IN_KEY: self._in_key,
            _State.COLON: self._colon,
            _State.INSIDE: self._inside,
            _State.BARE: self._bare,
        }
        while at < len(buffer) and not scan.is_damaged:
            at = step[self._state](scan, buffer, at)
        scan.stopped = at
        return scan

    def _value(self, scan: Scan, buffer: bytes, at: int) -> int:
        """Between values, or before one."""
        frame, byte = self._frames[-1], buffer[at]
        if byte == _NEWLINE:
            self._is_own_line = True
            self._indent.clear()
        elif byte in _BLANKS:
            self._indent.append(byte)
            self._is_own_line = self._is_own_line and len(self._indent) <= LONGEST_INDENT
            del self._indent[LONGEST_INDENT + 1 :]
        elif byte == _COMMA and not frame.is_object:
            self._is_own_line = False
        elif byte == _CLOSE_ARRAY and frame.step >= 0 and not frame.is_object:
            self._close(scan, at)
        elif byte in (_CLOSE_ARRAY, _CLOSE_OBJECT) or (frame.is_object and byte in (_COMMA, _COLON)):
            scan.is_damaged = True
        else:
            self._begin_value(scan, buffer, at)
            return at if self._state in (_State.INSIDE, _State.BARE) else at + 1
        return at + 1

    def _begin_value(self, scan: Scan, buffer: bytes, at: int) -> None:
        frame, byte = self._frames[-1], buffer[at]
        target = self._target if frame.is_object else frame.step + 1
        if target is None:
            self._pass_over(byte, _Purpose.SKIP if self._slot < 0 else _Purpose.OUTER)
            self._token = at if self._slot >= 0 else -1
            return
        is_doubled = frame.is_doubled or (frame.is_object and self._is_second)
        if not frame.is_object:
            self._hold(Held.UNIT, at)
        if frame.is_object and not is_doubled and target - 1 != self._first_key and byte == b"n"[0]:
            self._token = at
            self._pass_over(byte, _Purpose.NULL)
        elif target == len(self._steps):
            self._begin_record(scan, at, byte, is_doubled)
        elif byte == (_OPEN_ARRAY if self._steps[target] is None else _OPEN_OBJECT):
            values: list[bytes | Broken | None] = [None] * len(self._slots_of[target])
            self._frames.append(_Frame(target, byte == _OPEN_OBJECT, is_doubled, values))
            self._state = _State.KEY if byte == _OPEN_OBJECT else _State.VALUE
            self._is_own_line = False
            if byte == _OPEN_ARRAY:
                self._hold(Held.GAP, at + 1)
        elif is_doubled if frame.is_object else byte not in (_OPEN_OBJECT, _OPEN_ARRAY):
            self._begin_record(scan, at, byte, is_doubled)
        else:
            self._pass_over_unit(Flag.DOUBLED if is_doubled else Flag.NO_RECORDS)
            if byte not in (_QUOTE, _OPEN_OBJECT, _OPEN_ARRAY):
                self._state = _State.BARE

    def _begin_record(self, scan: Scan, at: int, byte: int, is_doubled: bool) -> None:
        self._hold(Held.RECORD, at)
        self._flag = Flag.DOUBLED if is_doubled else Flag.RECORD
        for frame in self._frames:
            if frame.values and not frame.has_record:
                frame.has_record = True
                scan.begun.append((len(scan.starts), frame.step))
        self._pass_over(byte, _Purpose.RECORD)

    def _pass_over(self, byte: int, purpose: _Purpose) -> None:
        self._purpose = purpose
        self._state = _State.INSIDE if byte in (_QUOTE, _OPEN_OBJECT, _OPEN_ARRAY) else _State.BARE

    def _pass_over_unit(self, flag: Flag) -> None:
        """The held unit has no records: its rest is passed over."""
        self._brackets[:] = b"{" * (len(self._frames) - self._depth)
        del self._frames[self._depth :]
        self._purpose, self._flag, self._state = _Purpose.UNIT, flag, _State.INSIDE

    def _hold(self, held: Held, at: int) -> None:
        self.held, self.hold, self._depth = held, at, len(self._frames)
        self.indent = bytes(self._indent) if self._is_own_line else None

    def _inside(self, scan: Scan, buffer: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            if buffer[at] != _NEWLINE:
                return at + 1
        special = (_END_IN_STRING if self._in_string else _BRACKET_OR_QUOTE).search(buffer, at)
        if special is None:
            return len(buffer)
        at = special.start()
        byte = buffer[at]
        if byte == _QUOTE:
            self._in_string = not self._in_string
        elif byte == _BACKSLASH:
            self._is_escaped = True
            return at + 1
        elif byte == _NEWLINE:
            scan.is_damaged = True
            return at
        elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            self._brackets.append(byte)
            scan.is_damaged = len(self._brackets) > DEEPEST
        elif not self._brackets or self._brackets[-1] != _OPENING_OF[byte]:
            scan.is_damaged = True
            return at
        else:
            self._brackets.pop()
        if not self._brackets and not self._in_string:
            self._end_value(scan, at + 1, buffer)
        return at + 1

    def _bare(self, scan: Scan, buffer: bytes, at: int) -> int:
        end = _END_OF_BARE.search(buffer, at)
        if end is None:
            return len(buffer)
        self._end_value(scan, end.start(), buffer)
        return end.start()

    def _end_value(self, scan: Scan, end: int, buffer: bytes = b"") -> None:
        match self._purpose:
            case _Purpose.RECORD:
                if end - self.hold > LINE_LIMIT:
                    scan.is_damaged = True
                    return
                self._emit(scan, end, self._flag)
            case _Purpose.UNIT:
                if self._brackets:  # the value without quotes or brackets that is no array of records
                    self._state = _State.INSIDE
                    return
                self._emit(scan, end, self._flag)
            case _Purpose.OUTER:
                is_whole = self._token >= 0 and end - self._token <= LONGEST_OUTER
                value: bytes | Broken = buffer[self._token : end] if is_whole else Broken.TOO_LONG
                values = self._frames[-1].values
                values[self._slot] = value if values[self._slot] is None else Broken.DOUBLED
            case _Purpose.NULL:
                if self._token < 0 or buffer[self._token : end] != b"null":
                    self._token = -1
                    self._pass_over_unit(Flag.NO_RECORDS)
                    return
        self._token = -1
        self._end_in_frame(scan, end)

    def _emit(self, scan: Scan, end: int, flag: Flag) -> None:
        scan.starts.append(self.hold)
        scan.ends.append(end)
        scan.flags.append(flag)
        self._is_own_line = False
        self._hold(Held.GAP, end)

    def _end_in_frame(self, scan: Scan, end: int) -> None:
        """A value ended: the next thing is a key, or another value."""
        self._state = _State.KEY if self._frames[-1].is_object else _State.VALUE
        self._is_own_line = False
        if len(self._frames) == 1:
            scan.settled = end

    def _close(self, scan: Scan, at: int) -> None:
        """The innermost array or object on the way ends at its bracket."""
        frame = self._frames.pop()
        scan.rows += _row(frame)
        if frame.is_object and not frame.was_seen and frame.step == self._first_key:
            self._emit(scan, at + 1, Flag.DOUBLED if frame.is_doubled else Flag.NO_RECORDS)
        elif self.held is Held.GAP or len(self._frames) == self._depth:
            self._is_own_line = False
            self._hold(Held.GAP, at + 1)
        self._end_in_frame(scan, at + 1)

    def _key(self, scan: Scan, buffer: bytes, at: int) -> int:
        byte = buffer[at]
        if byte == _QUOTE:
            self._state, self._token, self._is_escaped = _State.IN_KEY, at, False
        elif byte == _CLOSE_OBJECT:
            self._close(scan, at)
        else:
            scan.is_damaged = byte not in b" \t\r\n,"
        return at + 1

    def _in_key(self, scan: Scan, buffer: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            if buffer[at] != _NEWLINE:
                return at + 1
        special = _END_IN_STRING.search(buffer, at)
        if special is None:
            return len(buffer)
        at = special.start()
        if buffer[at] == _BACKSLASH:
            self._is_escaped = True
        elif buffer[at] == _NEWLINE:
            scan.is_damaged = True
        else:
            self._found_key(buffer[self._token + 1 : at] if self._token >= 0 else None)
            self._token, self._state = -1, _State.COLON
        return at + 1

    def _found_key(self, written: bytes | None) -> None:
        frame = self._frames[-1]
        key = _unescaped(written) if written is not None else None
        self._target, self._slot = None, -1
        if key is None:
            return
        if key == self._steps[frame.step]:
            self._target = frame.step + 1
            self._is_second, frame.was_seen = frame.was_seen, True
        elif key in self._slots_of[frame.step]:
            self._slot = self._slots_of[frame.step].index(key)

    def _colon(self, scan: Scan, buffer: bytes, at: int) -> int:
        byte = buffer[at]
        if byte == _COLON:
            self._state, self._is_own_line = _State.VALUE, False
        else:
            scan.is_damaged = byte not in b" \t\r\n"
        return at + 1


def _row(frame: _Frame) -> list[Row]:
    return [(frame.step, tuple(frame.values))] if frame.has_record else []


def _unescaped(written: bytes) -> str | None:
    """Returns the key between two quotes, or None if it is no text."""
    try:
        text = written.decode()
        return str(json.loads(f'"{text}"', strict=False)) if "\\" in text else text
    except ValueError:
        return None
