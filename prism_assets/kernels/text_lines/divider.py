"""Divides blocks of lines with known names of fields. The compiled divider must agree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import orjson

from prism_assets.domain.streams.reasons import BAD_HEADER, BAD_TEXT, BAD_UTF8
from prism_assets.domain.streams.text_lines import CsvFormat, TextFormat
from prism_assets.kernels.json.blocks import Block, Lines, find_lines
from prism_assets.kernels.text_lines.blocks import TextBlock
from prism_assets.kernels.text_lines.fields import RegexDivider, divider_of
from prism_assets.kernels.text_lines.read_fields import EVERY_FIELD, ReadFields

Row = Sequence[str | None]


class Divider:
    """Without names, no line has fields."""

    def __init__(self, form: TextFormat, names: tuple[str, ...] | None, read_fields: ReadFields) -> None:
        self._form = form
        self._regex = None if isinstance(form, CsvFormat) else RegexDivider(form)
        self._csv = divider_of(form) if isinstance(form, CsvFormat) else None
        self._given = names
        self._names = names if self._regex is None else self._regex.names
        self._nulls = frozenset(form.nulls)
        self._places = [place for place, name in enumerate(self._names or ()) if read_fields.takes(name)]
        self._read_names = [name for name in self._names or () if read_fields.takes(name)]

    def divide(self, block: Block, first: int) -> TextBlock:
        """Returns the lines of a block from number `first` on as JSON lines."""
        lines = find_lines(block, is_text=True)
        skipped = int(np.searchsorted(lines.numbers, first))
        lines = Lines(lines.starts[skipped:], lines.ends[skipped:], lines.numbers[skipped:])
        places = zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
        fields = self._fields([block.data[start:end] for start, end in places])
        # Rows of JSON stand on the numbers of their lines, so empty lines and the header leave an empty one.
        rows = [b""] * (int(lines.numbers[-1]) - block.first_line + 1 if len(lines) else 1)
        broken: list[tuple[int, str]] = []
        for place, (number, found) in enumerate(zip(lines.numbers.tolist(), fields, strict=True)):
            if isinstance(found, str):
                broken.append((place, found))
            else:
                rows[number - block.first_line] = self._json(found)
        divided = TextBlock(
            data=b"\n".join([*rows, b""]),
            first_line=block.first_line,
            offset=block.offset,
            content=block.data,
            lines=lines,
            whole=self.whole,
        )
        return divided.without(broken)

    @cached_property
    def _with_all(self) -> Divider:
        return Divider(self._form, self._given, EVERY_FIELD)

    def whole(self, line: bytes) -> bytes:
        """Returns a line with all of its fields as JSON, or as it is if it has none."""
        (fields,) = self._with_all._fields([line])
        return line if isinstance(fields, str) else self._with_all._json(fields)

    def _fields(self, lines: Sequence[bytes]) -> list[Row | str]:
        """Returns the fields of each line that are read, or why it has none."""
        if self._names is None:
            return [BAD_HEADER] * len(lines)
        texts = [_decoded(line) for line in lines]
        if self._regex is not None:
            matched = iter(self._regex.divide([text for text in texts if text is not None], self._places))
            found: list[Row | None] = [None if text is None else next(matched) for text in texts]
        else:
            found = [None if text is None else self._divided(text) for text in texts]
        return [
            fields if fields is not None else BAD_UTF8 if text is None else BAD_TEXT
            for text, fields in zip(texts, found, strict=True)
        ]

    def _divided(self, line: str) -> Row | None:
        assert self._csv is not None
        fields = self._csv(line, len(self._names or ()))
        if fields is None:
            return None
        count, nulls = len(fields), self._nulls
        return [fields[place] if place < count and fields[place] not in nulls else None for place in self._places]

    def _json(self, fields: Row) -> bytes:
        named = zip(self._read_names, fields, strict=True)
        return orjson.dumps({name: field for name, field in named if field is not None})


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
