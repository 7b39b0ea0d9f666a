"""A quick look at each line, where so many are refused that finding them one at a time would cost more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_PYTHON_TYPES: dict[pa.DataType, frozenset[type]] = {
    pa.string(): frozenset((str, type(None))),
    pa.int64(): frozenset((int, type(None))),
    pa.float64(): frozenset((int, float, type(None))),
    pa.bool_(): frozenset((bool, type(None))),
}


def unfit_lines(lines: Iterable[tuple[int, bytes]], types: Mapping[str, pa.DataType]) -> list[int]:
    """The positions of lines that are malformed or hold values of other types; it may miss some of them."""
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
