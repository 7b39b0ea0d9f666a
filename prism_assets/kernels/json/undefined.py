"""Counts fields that no column reads, by place, key and kind: keys of lines, and keys of structs.

A field with the value null does not count. Nothing inside a json value or a map counts. Unless every line must be
checked, only some are: checking all would make conversions take longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from prism_assets.domain.tables.drift import MOST_KEYS, FieldKind, shown_key
from prism_assets.kernels.columns import Indices
from prism_assets.kernels.values import Constant, Number

_FIRST_LINES = 1_000
_RUN, _RUNS = 64, 16


@dataclass
class UndefinedFields:
    """Undefined fields by place, key and kind: their count and first line. Holds the first 500 keys.

    The place is the path of a struct, such as `user` or `items[]`, or `""` for keys of lines.
    """

    found: dict[tuple[str, str, FieldKind], tuple[int, int]] = field(default_factory=dict)
    _keys: set[tuple[str, str]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, key: str, kind: FieldKind, count: int, line: int, within: str = "") -> None:
        """Adds `count` fields. The first is in line `line`."""
        if (within, key) not in self._keys:
            if len(self._keys) >= MOST_KEYS:
                return
            self._keys.add((within, key))
        before, first = self.found.get((within, key, kind), (0, line))
        self.found[within, key, kind] = before + count, min(first, line)

    def update(self, other: UndefinedFields) -> None:
        """Adds fields from another part of the object."""
        for (within, key, kind), (count, line) in sorted(
            other.found.items(), key=lambda item: (item[1][1], item[0][:2])
        ):
            self.add(key, kind, count, line, within)


def sampled_lines(numbers: Indices) -> npt.NDArray[np.bool_]:
    """Returns a mask of the lines to check: the first thousand of an object, then 64 of every 1,024."""
    return np.asarray((numbers <= _FIRST_LINES) | (numbers // _RUN % _RUNS == 0))


def kind_of(value: Any) -> FieldKind | None:
    """Returns the kind of a value. None for null and for constants such as NaN, which are no JSON."""
    if value is None or type(value) is Constant:
        return None
    if type(value) is Number:
        return FieldKind.NUMBER
    if isinstance(value, bool):
        return FieldKind.BOOLEAN
    return FieldKind.TEXT if type(value) is str else FieldKind.NESTED


def noted(others: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, FieldKind]]:
    """Yields the undefined fields of one line by key and kind."""
    for key, value in others:
        kind = kind_of(value)
        if kind is not None:
            yield shown_key(key), kind
