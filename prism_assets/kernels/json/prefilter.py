"""Selects lines the columnar reader may see. Vectorised, and rather marks one line too many than one too few."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prism_assets.kernels.json.blocks import Lines, Mask
from prism_assets.kernels.json.rows import DEPTH_LIMIT

_BEFORE_VALUE = np.frombuffer(b" \t\r:,[-", np.uint8)


def suspects(data: bytes, lines: Lines, odd: Mask) -> Mask:
    """Marks lines the columnar reader might judge differently from the exact reader.

    Marked lines do not look like an object (`odd`), contain a NUL or invalid UTF-8, nest deeply, or have NaN or an
    infinity in the place of a value.
    """
    marked = odd.copy()
    if b"\0" in data:
        _mark(marked, lines, np.flatnonzero(np.frombuffer(data, np.uint8) == 0))
    if not data.isascii():
        _mark_invalid_text(marked, data, lines)
    for word in (b"NaN", b"Inf"):
        _mark_constants(marked, data, lines, word)
    _mark_deep(marked, data, lines)
    return marked


def _mark(marked: Mask, lines: Lines, offsets: npt.NDArray[np.int64]) -> None:
    if len(offsets):
        marked[np.maximum(np.searchsorted(lines.starts, offsets, side="right") - 1, 0)] = True


def _mark_invalid_text(marked: Mask, data: bytes, lines: Lines) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        for index, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
            try:
                data[start:end].decode()
            except UnicodeDecodeError:
                marked[index] = True


def _mark_constants(marked: Mask, data: bytes, lines: Lines, word: bytes) -> None:
    """Marks a constant used as a value: it follows a colon, comma, bracket, minus or space. Most words do not."""
    if word[:1] not in data:
        return
    # Searching for one character and then for the next is several times faster than searching for the word.
    body = np.frombuffer(data, np.uint8)
    found = np.flatnonzero(body == word[0])
    for distance in (1, 2):
        found = found[found < len(body) - distance]
        found = found[body[found + distance] == word[distance]]
    if len(found):
        _mark(marked, lines, found[np.isin(body[np.maximum(found - 1, 0)], _BEFORE_VALUE)])


def _mark_deep(marked: Mask, data: bytes, lines: Lines) -> None:
    body = np.frombuffer(data, np.uint8)
    # `{` and `[` differ in one bit only. Most lines have one `{`, at their beginning, so counting settles most blocks.
    is_opening = (body | 0x20) == 0x7B
    if np.count_nonzero(is_opening) - np.count_nonzero(body[lines.starts] == 0x7B) < DEPTH_LIMIT:
        return
    opening = np.flatnonzero(is_opening)
    if len(opening) <= DEPTH_LIMIT:
        return
    longest = int((lines.ends - lines.starts).max())
    first = opening[:-DEPTH_LIMIT]
    near = np.flatnonzero(opening[DEPTH_LIMIT:] - first < longest)
    line_of = np.searchsorted(lines.starts, first[near], side="right")
    same = line_of == np.searchsorted(lines.starts, opening[DEPTH_LIMIT:][near], side="right")
    _mark(marked, lines, first[near[same]])
