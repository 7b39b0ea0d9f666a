"""Divides one line into fields: between delimiters, or by a regular expression. The compiled kernel must agree.

Only as many fields are read as have a name; what follows them on the line is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import StringIO

import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.streams.text_lines import CsvFormat, RegexFormat

Divide = Callable[[str, int], list[str] | None]
"""Returns at most a number of fields of a line, or None if the line is broken."""


def divider_of(form: CsvFormat) -> Divide:
    """Returns the function that divides lines of a format."""
    delimiter, quote = form.delimiter, form.quote
    quoted = _Quoted(form) if quote else None

    def divide(line: str, most: int) -> list[str] | None:
        if quoted is None or quote not in line:
            return line.split(delimiter, most)[:most]
        fields: list[str] = []
        at = 0
        while len(fields) < most:
            if line.startswith(quote, at):
                found = quoted.match(line, at + 1)
                if found is None:
                    return None
                field, at = found
                fields.append(field)
                if at < len(line) and line[at] != delimiter:
                    return None
            else:
                end = line.find(delimiter, at)
                fields.append(line[at:end] if end >= 0 else line[at:])
                at = end if end >= 0 else len(line)
            if at == len(line):
                break
            at += 1
        return fields

    return divide


class _Quoted:
    """Finds the end of a field in quotes. Takes time and memory in proportion to the field."""

    def __init__(self, form: CsvFormat) -> None:
        self._quote = form.quote
        self._sign = re.compile(f"[{re.escape(form.quote + form.escape)}]")

    def match(self, line: str, start: int) -> tuple[str, int] | None:
        """Returns the field that begins after a quote, and the place after its other quote; None if it is open."""
        literal: StringIO | None = None
        begin = at = start
        while found := self._sign.search(line, at):
            at = found.start()
            if line[at] == self._quote and not line.startswith(self._quote, at + 1):
                field = line[begin:at]
                if literal is not None:
                    literal.write(field)
                    field = literal.getvalue()
                return field, at + 1
            if at + 1 == len(line):
                return None
            # The sign itself goes, and the character after it stays, whatever it is.
            literal = literal or StringIO()
            literal.write(line[begin:at])
            begin, at = at + 1, at + 2
        return None


class RegexDivider:
    """Divides many lines at once by a regular expression. pyarrow has RE2."""

    def __init__(self, form: RegexFormat) -> None:
        self._regex = form.regex
        self._nulls = pa.array(["", *form.nulls], pa.string())
        self.names = groups_of(form.regex)

    def divide(self, lines: Sequence[str], places: Sequence[int]) -> list[tuple[str | None, ...] | None]:
        """Returns the groups of each line in some places, or None for a line without a match."""
        found = pc.extract_regex(pa.array(lines, pa.string()), self._regex)
        columns = [self._texts(found.field(place)) for place in places]
        rows = zip(*columns, strict=True) if columns else ((),) * len(lines)
        return [row if matches else None for row, matches in zip(rows, found.is_valid().to_pylist(), strict=True)]

    def _texts(self, group: pa.Array) -> list[str | None]:
        is_null = pc.is_in(group, value_set=self._nulls)
        return list((pc.if_else(is_null, None, group) if is_null.true_count else group).to_pylist())


def groups_of(regex: str) -> tuple[str, ...]:
    """Returns the names of the groups in order. Raises ArrowInvalid for an expression that RE2 refuses."""
    kind = pc.extract_regex(pa.array([], pa.string()), regex).type
    return tuple(kind.field(place).name for place in range(kind.num_fields))
