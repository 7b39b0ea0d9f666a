"""Counts fields without a column by key and kind, in most lines at once.

A field with the value null does not count. Only keys of the line itself count, not those of nested objects. Unless
every line must be checked, only some are: checking all would make conversions take half as long again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import numpy as np
import numpy.typing as npt

from prism_assets.domain.tables.drift import MOST_KEYS, FieldKind, shown_key
from prism_assets.kernels.json.blocks import Lines
from prism_assets.kernels.values import Constant, Number

Indices = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_QUOTE, _BACKSLASH, _COLON, _BRACE = 34, 92, 58, 123
_WORD = 8
_SPACES = np.zeros(256, bool)
_SPACES[list(b" \t\r\n")] = True
_KINDS = tuple(FieldKind)
_NONE = len(_KINDS)
_KIND_OF_BYTE = np.full(256, _NONE, np.int64)
for _kind, _first in (
    (FieldKind.TEXT, b'"'),
    (FieldKind.NUMBER, b"-0123456789"),
    (FieldKind.BOOLEAN, b"tf"),
    (FieldKind.NESTED, b"{["),
):
    _KIND_OF_BYTE[list(_first)] = _KINDS.index(_kind)
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], np.uint64)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LENGTH_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT = np.uint64(29)
_FIRST_LINES = 1_000
_RUN, _RUNS = 64, 16
_MOST_AT_ONCE = 8 * MOST_KEYS
"""The first distinct keys of a block that are examined. Lines that use values as keys may have any number of keys."""


@dataclass
class UndefinedFields:
    """Undefined fields by key and kind: their count and first line. Holds the first 500 keys."""

    found: dict[tuple[str, FieldKind], tuple[int, int]] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, key: str, kind: FieldKind, count: int, line: int) -> None:
        """Adds `count` fields. The first is in line `line`."""
        if key not in self._keys:
            if len(self._keys) >= MOST_KEYS:
                return
            self._keys.add(key)
        before, first = self.found.get((key, kind), (0, line))
        self.found[key, kind] = before + count, min(first, line)

    def update(self, other: UndefinedFields) -> None:
        """Adds fields from another part of the object."""
        for (key, kind), (count, line) in sorted(other.found.items(), key=lambda item: (item[1][1], item[0][0])):
            self.add(key, kind, count, line)


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


@dataclass(frozen=True)
class Seen:
    """Undefined fields of a block, and the positions of lines with one."""

    fields: UndefinedFields
    lines: Indices


class FieldFinder:
    """Finds fields of well-formed lines whose keys are not `known`, in all lines or in those of `sampled_lines`."""

    def __init__(self, names: Iterable[str], known: Container[str], *, everywhere: bool) -> None:
        self._known = known
        self._everywhere = everywhere
        self._hashes = np.unique(np.array([_hash_of(name.encode()) for name in names], np.uint64))

    def find(self, body: bytes | bytearray, lines: Lines) -> Seen:
        """Checks a body with only these lines, each a well-formed object, and empty objects."""
        chosen = np.arange(len(lines)) if self._everywhere else np.flatnonzero(sampled_lines(lines.numbers))
        if not len(chosen):
            return self._nothing()
        if len(chosen) < len(lines):
            body, lines = _cut_out(body, lines, chosen)
        keys = _keys(body, lines)
        if keys is None:
            return self._nothing()
        seen = self._seen(keys, lines)
        return Seen(seen.fields, chosen[seen.lines])

    def _seen(self, keys: _KeyPositions, lines: Lines) -> Seen:
        hashes = keys.hashes()
        strange = np.flatnonzero(~np.isin(hashes, self._hashes) & (keys.kinds != _NONE))
        if not len(strange):
            return self._nothing()
        return self._counted(keys, hashes, strange, lines)

    def _nothing(self) -> Seen:
        return Seen(UndefinedFields(), np.zeros(0, np.int64))

    def _counted(self, keys: _KeyPositions, hashes: Hashes, strange: Indices, lines: Lines) -> Seen:
        strange_hashes, kinds = hashes[strange], keys.kinds[strange]
        places = np.searchsorted(lines.starts, keys.starts[strange], side="right") - 1
        _, firsts, groups = np.unique(strange_hashes, return_index=True, return_inverse=True)
        fields = UndefinedFields()
        is_known = np.ones(len(firsts), bool)
        for group in np.argsort(firsts)[:_MOST_AT_ONCE].tolist():
            key = keys.text(int(strange[firsts[group]]))
            is_known[group] = key in self._known
            if is_known[group]:
                continue
            members = np.flatnonzero(groups == group)
            for kind in np.unique(kinds[members]).tolist():
                of_kind = members[kinds[members] == kind]
                line = int(lines.numbers[places[of_kind[0]]])
                fields.add(shown_key(key), _KINDS[kind], len(of_kind), line)
        return Seen(fields, np.unique(places[~is_known[groups]]))


@dataclass(frozen=True)
class _KeyPositions:
    """The keys in the lines of a body: start, length, and the kind of the value."""

    body: bytes
    starts: Indices
    lengths: Indices
    kinds: Indices

    def hashes(self) -> Hashes:
        """Returns one hash per key. Equal keys have equal hashes."""
        words: Hashes = np.ndarray((len(self.body) - _WORD + 1,), "<u8", self.body, strides=(1,))
        found = _begun(self.lengths)
        for word in range(0, int(self.lengths.max(initial=1)), _WORD):
            longer = np.flatnonzero(self.lengths > word) if word else np.arange(len(self.lengths))
            rest = np.minimum(self.lengths[longer] - word, _WORD)
            found[longer] = _mixed(found[longer], words[self.starts[longer] + word] & _MASKS[rest])
        return found

    def text(self, index: int) -> str:
        """Returns a key without escapes."""
        start, length = int(self.starts[index]), int(self.lengths[index])
        text = self.body[start : start + length].decode()
        return str(scanstring(f'{text}"', 0, True)[0]) if "\\" in text else text


def _begun(lengths: Indices) -> Hashes:
    return lengths.astype(np.uint64) * _LENGTH_FACTOR


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = (hashes ^ words) * _FACTOR
    return mixed ^ (mixed >> _SHIFT)


@lru_cache(maxsize=4096)
def _hash_of(name: bytes) -> int:
    """Returns the hash of a key without escapes. Cached, because a worker hashes a table's keys for every object."""
    padded = name + bytes(_WORD)
    keys = _KeyPositions(padded, np.zeros(1, np.int64), np.array([len(name)], np.int64), np.zeros(1, np.int64))
    return int(keys.hashes()[0])


def _cut_out(body: bytes | bytearray, lines: Lines, chosen: Indices) -> tuple[bytes, Lines]:
    """Returns some of the lines in a body of their own. The lines come in runs."""
    breaks = np.flatnonzero(np.diff(chosen) > 1) + 1
    pieces, shifts, length = [], np.zeros(len(chosen), np.int64), 0
    for run in np.split(np.arange(len(chosen)), breaks):
        begin, end = int(lines.starts[chosen[run[0]]]), int(lines.ends[chosen[run[-1]]])
        pieces.append(body[begin:end])
        shifts[run] = length - begin
        length += end - begin + 1
    return b"\n".join(pieces), Lines(lines.starts[chosen] + shifts, lines.ends[chosen] + shifts, lines.numbers[chosen])


def _keys(body: bytes | bytearray, lines: Lines) -> _KeyPositions | None:
    """Returns the keys of the lines, or None without any."""
    padded = bytes(body) + bytes(2 * _WORD)
    data = np.frombuffer(padded, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    if b"\\" in body:
        quotes = quotes[~_escaped(data, quotes)]
    opening, closing = quotes[0::2], quotes[1::2]
    if not len(closing):
        return None
    after = _past_spaces(data, closing + 1)
    is_key = data[after] == _COLON
    starts, ends, colons = opening[is_key], closing[is_key], after[is_key]
    if body.count(b"[") or body.count(b"{") > np.count_nonzero(data[lines.starts] == _BRACE):
        top = _at_top(data, quotes, starts)
        starts, ends, colons = starts[top], ends[top], colons[top]
    kinds = _KIND_OF_BYTE[data[_past_spaces(data, colons + 1)]]
    return _KeyPositions(padded, starts + 1, ends - starts - 1, kinds)


def _escaped(data: npt.NDArray[np.uint8], quotes: Indices) -> npt.NDArray[np.bool_]:
    """Returns a mask of the quotes preceded by an odd number of backslashes."""
    odd = np.zeros(len(quotes), bool)
    behind = np.flatnonzero(data[quotes - 1] == _BACKSLASH)
    distance = 1
    while len(behind):
        odd[behind] = ~odd[behind]
        distance += 1
        behind = behind[data[quotes[behind] - distance] == _BACKSLASH]
    return odd


def _past_spaces(data: npt.NDArray[np.uint8], positions: Indices) -> Indices:
    """Returns, for each position, the next position without a space."""
    on_space = np.flatnonzero(_SPACES[data[positions]])
    if not len(on_space):
        return positions
    positions = positions.copy()
    while len(on_space):
        positions[on_space] += 1
        on_space = on_space[_SPACES[data[positions[on_space]]]]
    return positions


def _at_top(data: npt.NDArray[np.uint8], quotes: Indices, starts: Indices) -> npt.NDArray[np.bool_]:
    """Returns a mask of the quotes in the line itself, outside nested objects."""
    folded = data | 0x20  # `{` and `[` differ in one bit only, and so do `}` and `]`
    brackets = np.flatnonzero((folded == 0x7B) | (folded == 0x7D))
    inside = (np.searchsorted(quotes, brackets) & 1).astype(bool)
    brackets = brackets[~inside]
    depths = np.cumsum(np.where(folded[brackets] == 0x7B, 1, -1))
    return np.asarray(depths[np.searchsorted(brackets, starts) - 1] == 1)


def noted(others: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, FieldKind]]:
    """Yields the undefined fields of one line by key and kind."""
    for key, value in others:
        kind = kind_of(value)
        if kind is not None:
            yield shown_key(key), kind
