"""Reads one line: decides whether it is well-formed and returns its fields. Decides every case of bad input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from prism_assets.domain.streams.reasons import BAD_JSON, BAD_UTF8, DUPLICATE_KEY, NOT_OBJECT, TOO_DEEP
from prism_assets.kernels.values import scan_once

DEPTH_LIMIT = 128

_WHITESPACE = re.compile(r"[ \t\r\n]*")
COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
NEXT_MEMBER = re.compile(r"[ \t\r\n]*([,}])[ \t\r\n]*")
# The closing quote is optional. Otherwise an unterminated string would be scanned once per character.
_BRACKET_OR_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Value = tuple[Any, str]
"""A JSON value with its text as written."""
NOTHING: Value = (None, "")
"""Null, or a missing value."""
Fields = dict[str, Value]
Others = list[tuple[str, Any]]
"""Keys without a column, with their values."""


class EveryKey(dict[str, str]):
    """Contains all keys. A second occurrence is reported under `path`, or under the key itself."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self._path = path

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return self._path or key


EVERY_KEY: Mapping[str, str] = EveryKey()
"""Reads all keys, with or without a column."""


class RejectedError(Exception):
    """The line cannot become a row. `column` is the deciding column, if there is one."""

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column


@dataclass(frozen=True)
class Reject:
    """A line to quarantine."""

    line: int
    """Position among the lines of the block."""
    reason: str
    column: str | None
    """The deciding column, if there is one."""


def read_line(line: bytes, wanted: Mapping[str, str], others: Others | None = None) -> Fields:
    """Returns the wanted fields of a line: JSON key → (value, its text). Raises RejectedError.

    `wanted` maps JSON keys to a column that reads them. `others` collects all other fields.
    """
    text = _decoded(line)
    start = _after_whitespace(text, 0)
    if text[start : start + 1] != "{":
        _check_other(text, start)
    try:
        fields = read_object(text, start + 1, wanted, others)
    except (ValueError, StopIteration):
        raise RejectedError(BAD_JSON) from None
    _check_surrogates(text)
    return fields


def read_value(written: bytes) -> Value:
    """Returns a value that stands outside of a line. Raises RejectedError as for a line."""
    text = _decoded(written)
    try:
        value, end = scan_once(text, 0)
    except (ValueError, StopIteration):
        raise RejectedError(BAD_JSON) from None
    if end != len(text):
        raise RejectedError(BAD_JSON)
    _check_surrogates(text)
    return value, text


def _decoded(written: bytes) -> str:
    """Returns JSON as text. Raises RejectedError for other bytes than UTF-8, and for brackets nested too deep."""
    try:
        text = written.decode()
    except UnicodeDecodeError:
        raise RejectedError(BAD_UTF8) from None
    if text.count("{") + text.count("[") > DEPTH_LIMIT and _depth(text) > DEPTH_LIMIT:
        raise RejectedError(TOO_DEEP)
    return text


def _check_surrogates(text: str) -> None:
    """Raises RejectedError for text with half a surrogate pair: well-formed JSON but no Unicode text."""
    if _SURROGATE.search(text) and _has_lone_surrogate(text):
        raise RejectedError(BAD_UTF8)


def _after_whitespace(text: str, start: int) -> int:
    match = _WHITESPACE.match(text, start)
    return match.end() if match else start


def _check_other(text: str, start: int) -> None:
    """Raises RejectedError: NOT_OBJECT for a scalar or an array, BAD_JSON for anything else."""
    try:
        _, end = scan_once(text, start)
    except (ValueError, StopIteration):
        raise RejectedError(BAD_JSON) from None
    if _after_whitespace(text, end) != len(text):
        raise RejectedError(BAD_JSON)
    _check_surrogates(text)
    raise RejectedError(NOT_OBJECT)


def read_object(text: str, position: int, wanted: Mapping[str, str], others: Others | None = None) -> Fields:
    """Reads the object whose opening bracket precedes `position`. Nothing may follow the object.

    Raises ValueError or StopIteration if it is malformed, and RejectedError for a duplicate wanted key.
    """
    fields: Fields = {}
    doubled: str | None = None
    position = _after_whitespace(text, position)
    if text[position : position + 1] == "}":
        return _ended(text, position + 1, fields, None)
    while True:
        if text[position : position + 1] != '"':
            raise ValueError
        key, position = scanstring(text, position + 1, True)
        colon = COLON.match(text, position)
        if colon is None:
            raise ValueError
        start = colon.end()
        value, position = scan_once(text, start)
        if key in wanted:
            doubled = doubled or (wanted[key] if key in fields else None)
            fields[key] = (value, text[start:position])
        elif others is not None:
            others.append((key, value))
        following = NEXT_MEMBER.match(text, position)
        if following is None:
            raise ValueError
        position = following.end()
        if following[1] == "}":
            return _ended(text, position, fields, doubled)


def _ended(text: str, end: int, fields: Fields, doubled: str | None) -> Fields:
    if _after_whitespace(text, end) != len(text):
        raise ValueError
    if doubled is not None:
        _check_surrogates(text)
        raise RejectedError(DUPLICATE_KEY, doubled)
    return fields


def _depth(text: str) -> int:
    """Returns the depth of nesting. Stops counting beyond the limit."""
    depth = deepest = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        bracket = match[0]
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if depth > DEPTH_LIMIT:
                break
        elif bracket in "]}":
            depth -= 1
    return deepest


def _has_lone_surrogate(text: str) -> bool:
    high_end = -1
    for match in _ESCAPE.finditer(text):
        code = int(match[1], 16) if match[1] else 0
        follows_high = match.start() == high_end
        if high_end >= 0 and not (follows_high and 0xDC00 <= code <= 0xDFFF):
            return True
        if not follows_high and 0xDC00 <= code <= 0xDFFF:
            return True
        high_end = match.end() if 0xD800 <= code <= 0xDBFF else -1
    return high_end >= 0
