"""Finds out how lines of text in a sample are divided: by a delimiter, or as access logs of web servers are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prism_assets.domain.names import TableName
from prism_assets.domain.streams.text_lines import MOST_FIELDS, CsvFormat, RegexFormat, TextFormat, names_problem
from prism_assets.domain.tables.drafted_types import ALMOST_ALL
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.drafting.recipes import recipe_text
from prism_assets.kernels import times
from prism_assets.kernels.text_lines.fields import RegexDivider, divider_of
from prism_assets.kernels.values import number_text

ACCESS_LOG = RegexFormat(
    regex=(
        r"^(?P<remote_addr>\S+) \S+ (?P<remote_user>\S+) \[(?P<time_local>[^\]]+)\] "
        r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d+) (?P<body_bytes_sent>\S+)'
        r'(?: "(?P<http_referer>(?:[^"\\]|\\.)*)" "(?P<http_user_agent>(?:[^"\\]|\\.)*)")?'
    ),
    nulls=("-",),
)
"""The common log format, and the combined one of nginx and Apache."""
_ALB_TYPES = frozenset({"http", "https", "h2", "grpcs", "ws", "wss"})
_FEWEST_ALB = 25
_LINES = 200
_NULL = "-"
_JSON_OR_BINARY = re.compile(r"[{}\[\]]|.*[\x00-\x08\ufffd]")
_NAME = re.compile(r"[A-Za-z_][\w .:/()%#-]*")


def alb_format() -> CsvFormat:
    """Returns the format of access logs of Application Load Balancers, as their recipe has it."""
    table = parse_table_file(recipe_text("alb", TableName("log", "alb"), "s3://staging/alb/"), "alb.yaml")
    form = table.streams[0].format
    assert isinstance(form, CsvFormat)
    return form


def text_format_of(heads: Sequence[bytes]) -> TextFormat | None:
    """Returns the format of lines from the beginnings of objects, or None if they are no divided text."""
    by_object = [lines for head in heads if (lines := list(_lines(head)))]
    lines = [line for part in by_object for line in part]
    if not lines or not _are_almost_all(sum(map(_is_text, lines)), lines):
        return None
    matched = RegexDivider(ACCESS_LOG).divide(lines, [0])
    if _are_almost_all(sum(found is not None for found in matched), lines):
        return ACCESS_LOG
    return _csv_of(by_object, lines)


def _lines(head: bytes) -> Iterator[str]:
    for line in head.split(b"\n", _LINES)[:_LINES]:
        text = line.decode(errors="replace").removesuffix("\r")
        if text.strip():
            yield text


def _is_text(line: str) -> bool:
    return _JSON_OR_BINARY.match(line) is None


def _are_almost_all(count: int, lines: Sequence[str]) -> bool:
    return count >= ALMOST_ALL * len(lines)


def _csv_of(by_object: Sequence[Sequence[str]], lines: Sequence[str]) -> CsvFormat | None:
    found: list[tuple[int, CsvFormat]] = []
    for delimiter in (",", "\t", ";", "|", " "):
        for escape in ("", "\\"):
            form = CsvFormat(delimiter=delimiter, escape=escape)
            divide = divider_of(form)
            counts = Counter(len(fields) for line in lines if (fields := divide(line, MOST_FIELDS)) is not None)
            width, count = counts.most_common(1)[0] if counts else (0, 0)
            if width >= (3 if delimiter == " " else 2) and _are_almost_all(count, lines):
                found.append((width, form))
    if not found:
        return None
    width, form = max(found, key=lambda item: item[0])  # of two that are equal, the first
    rows = [[fields for line in part if (fields := divider_of(form)(line, MOST_FIELDS))] for part in by_object]
    has_null = any(_NULL in row for part in rows for row in part)
    form = replace(form, nulls=(_NULL, "") if has_null else ("",))
    if all(_has_header(part) for part in rows):
        return replace(form, header=True)
    return replace(form, columns=_names(rows[0][0], width))


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has names alone, and the others have numbers or times in some column."""
    if len(rows) < 2:
        return False
    names, *others = rows
    if names_problem(names) or not all(_NAME.fullmatch(name) and not _is_exact(name) for name in names):
        return False
    return any(all(_is_exact(row[place]) for row in others if len(row) > place) for place in range(len(names)))


def _is_exact(text: str) -> bool:
    """Whether a text is a number or a time."""
    return number_text(text) is not None or times.parse_timestamp(text, 0) is not None


def _names(row: Sequence[str], width: int) -> tuple[str, ...]:
    if row[0] in _ALB_TYPES and times.parse_timestamp(row[1], 0) is not None:
        names = alb_format().columns
        if _FEWEST_ALB <= width <= len(names):
            return names[:width]
    return tuple(f"field_{number}" for number in range(1, width + 1))
