"""Divides one line into fields: between delimiters, or by a regular expression. The compiled kernel must agree.

Only as many fields are read as have a name; what follows them on the line is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

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
    """Finds the end of a field in quotes."""

    def __init__(self, form: CsvFormat) -> None:
        quote, escape = re.escape(form.quote), re.escape(form.escape)
        plain, pair = f"[^{quote}{escape}]*", f"{quote}{quote}"
        special = f"(?:{escape}.|{pair})" if escape else pair
        self._field = re.compile(f"({plain}(?:{special}{plain})*){quote}", re.DOTALL)
        self._special = re.compile(f"{escape}(.)|{quote}({quote})" if escape else f"{quote}({quote})", re.DOTALL)
        self._signs = f"{form.quote}{form.escape}"

    def match(self, line: str, start: int) -> tuple[str, int] | None:
        """Returns the field that begins after a quote, and the place after its other quote; None if it is open."""
        found = self._field.match(line, start)
        if found is None:
            return None
        field: str = found[1]
        if any(sign in field for sign in self._signs):
            field = self._special.sub(_literal, field)
        return field, found.end()


def _literal(found: re.Match[str]) -> str:
    return str(found[found.lastindex or 0])


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
