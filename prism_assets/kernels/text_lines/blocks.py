"""Blocks of text lines as JSON lines, so that later code reads and counts them as lines.

A line keeps its number. A line that cannot be divided becomes a blank line and is quarantined alone. A wrong header
does the same to all lines of its object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from prism_assets.domain.streams.reasons import BAD_HEADER, BAD_TEXT, BAD_UTF8
from prism_assets.domain.streams.text_lines import MOST_FIELDS, CsvFormat, TextFormat, names_problem
from prism_assets.kernels.json.blocks import Block, Lines, LongLine, Original, Positions, Unread, find_lines
from prism_assets.kernels.text_lines.fields import RegexDivider, divider_of
from prism_assets.kernels.text_lines.wanted import EVERYTHING, Wanted

Whole = Callable[[bytes], bytes]
"""Returns a divided line with all of its fields as JSON."""


@dataclass(frozen=True)
class TextBlock(Block):
    """Text lines as JSON lines."""

    content: bytes = b""
    """The lines as the object has them, from `offset` on."""
    lines: Lines = field(default_factory=lambda: Lines(_nowhere(), _nowhere(), _nowhere()))
    """The lines in `content` that are records: no blank ones, and no header."""
    whole: Whole = bytes

    def original(self, number: int, start: int, end: int) -> Original:
        """Returns a quarantined line with all its fields, with or without a column."""
        place = int(np.searchsorted(self.lines.numbers, number))
        original = self._piece(place)
        return Original(self.whole(original.content), original.offset, original.length)

    def originals(self) -> Iterator[tuple[int, Original]]:
        """Yields all lines as the object has them."""
        for place, number in enumerate(self.lines.numbers.tolist()):
            yield number, self._piece(place)

    def _piece(self, place: int) -> Original:
        start, end = int(self.lines.starts[place]), int(self.lines.ends[place])
        return Original(self.content[start:end], self.offset + start, end - start)


def _nowhere() -> Positions:
    return np.zeros(0, np.int64)


def divide_lines(
    parts: Iterable[Block | LongLine],
    form: TextFormat,
    wanted: Wanted = EVERYTHING,
    note: Callable[[str], object] = lambda reason: None,
) -> Iterator[Block | LongLine]:
    """Divides the lines of one object. `note` hears of a header that names no fields."""
    has_header = isinstance(form, CsvFormat) and form.header
    divider = None if has_header else _Divider(form, () if not isinstance(form, CsvFormat) else form.columns, wanted)
    is_first = True
    for part in parts:
        header = None
        if has_header and is_first and isinstance(form, CsvFormat):
            header = _first_line(part)
            names = _names(form, header, wanted)
            if names is None:
                note(BAD_HEADER)
            divider = _Divider(form, names, wanted)
        is_first = False
        if isinstance(part, LongLine) or divider is None:
            yield part
            continue
        lines = find_lines(part)
        if header is not None:
            lines = _from(lines, int(np.searchsorted(lines.numbers, part.first_line + 1)))
        yield divider.divide(part, lines)


def _first_line(part: Block | LongLine) -> bytes:
    if isinstance(part, LongLine):
        return b""
    return part.data.partition(b"\n")[0].removesuffix(b"\r")


def _names(form: CsvFormat, header: bytes, wanted: Wanted) -> tuple[str, ...] | None:
    """Returns the names in a header, or None if it is none."""
    try:
        names = divider_of(form)(header.decode(), MOST_FIELDS + 1)
    except UnicodeDecodeError:
        return None
    if names is None or names_problem(names) is not None:
        return None
    return tuple(names) if not wanted.expected or any(name in wanted.expected for name in names) else None


def _from(lines: Lines, first: int) -> Lines:
    return Lines(lines.starts[first:], lines.ends[first:], lines.numbers[first:])


class _Divider:
    """Divides lines with known names of fields. Without names, no line is read."""

    def __init__(self, form: TextFormat, names: tuple[str, ...] | None, wanted: Wanted) -> None:
        self._regex = None if isinstance(form, CsvFormat) else RegexDivider(form)
        self._csv = divider_of(form) if isinstance(form, CsvFormat) else None
        self._names = names if self._regex is None else self._regex.names
        self._nulls = frozenset(form.nulls if self._regex is None else ("", *form.nulls))
        named = list(enumerate(self._names or ()))
        self._all = named
        self._wanted = [(place, name) for place, name in named if wanted.keys is None or name in wanted.keys]

    def divide(self, block: Block, lines: Lines) -> TextBlock:
        """Returns the lines of a block as JSON lines, each with its number."""
        places = zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
        texts = [block.data[start:end] for start, end in places]
        numbers = lines.numbers.tolist()
        # Rows of JSON stand on the numbers of their lines, so blank lines and the header leave an empty one.
        rows = [b""] * (numbers[-1] - block.first_line + 1 if numbers else 1)
        unread: list[Unread] = []
        for place, (number, found) in enumerate(zip(numbers, self._fields(texts), strict=True)):
            if isinstance(found, str):
                start, end = int(lines.starts[place]), int(lines.ends[place])
                unread.append(Unread(number, found, Original(texts[place], block.offset + start, end - start)))
            else:
                rows[number - block.first_line] = self._json(found, self._wanted)
        return TextBlock(
            data=b"\n".join([*rows, b""]),
            first_line=block.first_line,
            offset=block.offset,
            unread=tuple(unread),
            content=block.data,
            lines=lines,
            whole=self._whole,
        )

    def _fields(self, lines: Sequence[bytes]) -> list[Sequence[str] | str]:
        """Returns the fields of each line, or why it has none."""
        if self._names is None:
            return [BAD_HEADER] * len(lines)
        texts = [_decoded(line) for line in lines]
        if self._regex is not None:
            matched = iter(self._regex.divide([text for text in texts if text is not None]))
            found = [None if text is None else next(matched) for text in texts]
        else:
            most = len(self._names)
            assert self._csv is not None
            found = [None if text is None else self._csv(text, most) for text in texts]
        return [
            fields if fields is not None else BAD_UTF8 if text is None else BAD_TEXT
            for text, fields in zip(texts, found, strict=True)
        ]

    def _whole(self, line: bytes) -> bytes:
        (fields,) = self._fields([line])
        return line if isinstance(fields, str) else self._json(fields, self._all)

    def _json(self, fields: Sequence[str], named: Sequence[tuple[int, str]]) -> bytes:
        count, nulls = len(fields), self._nulls
        return orjson.dumps(
            {name: fields[place] for place, name in named if place < count and fields[place] not in nulls}
        )


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
