"""Checks the text streams of a table file for `prism table apply`."""

from __future__ import annotations

import pyarrow as pa

from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.streams.text_lines import CsvFormat, RegexFormat, names_problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.text_lines.fields import groups_of
from prism_assets.kernels.unfed_columns import unfed_columns


def problems_of_text(table: TableDefinition) -> list[str]:
    """Returns each problem as a line `path:line: field: message`."""
    fields: set[str] = set()
    problems = []
    for number, stream in enumerate(table.streams):
        if isinstance(stream.format, RegexFormat):
            names, problem = _groups(stream.format)
            fields.update(names)
            if problem:
                place = f"streams[{number}].format.regex"
                problems.append(f"{table.places.get(place) or f'{table.path}:1: {place}'}: {problem}")
        elif isinstance(stream.format, CsvFormat):
            fields.update(stream.format.columns)
    if not problems and table.streams and all(map(_names_fields, table.streams)):
        problems += unfed_columns(table, fields, "which no format of its streams has as a field")
    return problems


def _groups(form: RegexFormat) -> tuple[tuple[str, ...], str | None]:
    try:
        names = groups_of(form.regex)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        hint = ": write (?:…) for a group without a name" if "unnamed" in reason else ""
        return (), f"is no regular expression of RE2 with named groups: {reason}{hint}"
    if not names:
        return (), r"has no named group, such as (?P<ip>\S+): groups are the fields of a line"
    return names, names_problem(names)


def _names_fields(stream: Stream) -> bool:
    """Whether the table file has the names of all fields of a stream."""
    form = stream.format
    return isinstance(form, RegexFormat) or (isinstance(form, CsvFormat) and not form.header)
