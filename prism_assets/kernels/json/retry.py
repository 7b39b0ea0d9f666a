"""Checks each line quickly, for blocks with so many refused lines that finding them one at a time would cost more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

_MISSING = type(None)
_PYTHON_TYPES: dict[pa.DataType, frozenset[type]] = {
    pa.string(): frozenset((str, _MISSING)),
    pa.int64(): frozenset((int, _MISSING)),
    pa.float64(): frozenset((int, float, _MISSING)),
    pa.bool_(): frozenset((bool, _MISSING)),
}
_TOP = 1 << 63


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError
    return document


def _whole(text: str) -> int:
    number = int(text)
    if not -_TOP <= number < _TOP:
        raise ValueError
    return number


_scan = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole).scan_once  # type: ignore[attr-defined]


def unfit_lines(lines: Iterable[tuple[int, bytes]], types: Mapping[str, pa.DataType]) -> list[int]:
    """Returns positions of lines that are malformed or hold values of other types.

    May include lines with a duplicate key or a huge number that no column reads, and may miss a few.
    """
    expected = [(source, _PYTHON_TYPES[chosen]) for source, chosen in types.items()]
    return [position for position, line in lines if not _fits(line, expected)]


def _fits(line: bytes, expected: list[tuple[str, frozenset[type]]]) -> bool:
    try:
        text = line.decode()
        document, end = _scan(text, 0)
    except (ValueError, StopIteration):
        return False
    if end != len(text):
        return False
    get = document.get
    return all(type(get(source)) in types for source, types in expected)
