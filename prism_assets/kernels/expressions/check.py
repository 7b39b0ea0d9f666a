"""Checks the expressions of a table file for `prism table apply`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.records.joins import CHANGE_DELETED
from prism_assets.domain.streams.sources import Pattern, sources_of
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import KEEP_FIELD, RowProgram, source_field, value_field
from prism_assets.kernels.expressions.compiled import problems_of


def problems_of_table(table: TableDefinition) -> list[str]:
    """Returns each problem as a line `path:line: field: message`, also of streams with their own columns."""
    readings = (*table.readings, *_conditions_of_deletes(table))
    return list(dict.fromkeys(line for reading in readings for line in _problems_of_reading(reading)))


def _conditions_of_deletes(table: TableDefinition) -> Iterator[TableDefinition]:
    """Yields definitions that keep the lines with deletes. A delete condition must be true or false, like `keep`."""
    for stream in table.streams:
        if stream.delete is not None:
            reading = table.for_stream(stream)
            field = value_field(CHANGE_DELETED)
            place = reading.places.get(field) or f"{table.path}:1: {field}"
            yield replace(reading, keep=stream.delete, places={**reading.places, KEEP_FIELD: place})


def _problems_of_reading(table: TableDefinition) -> Iterator[str]:
    program = RowProgram.of(table)
    found = [*_patterns(program), *((problem.field, problem.message) for problem in problems_of(program))]
    for field, message in found:
        yield f"{table.places.get(field) or f'{table.path}:1: {field}'}: {message}"


def _patterns(program: RowProgram) -> Iterator[tuple[str, str]]:
    for column in program.reads:
        for source in sources_of(column):
            if isinstance(source, Pattern) and (problem := _refused(source)):
                yield source_field(column.name), f"/{source.expression}/ is no regular expression: {problem}"


def _refused(pattern: Pattern) -> str | None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern.expression)
    except pa.ArrowInvalid as error:
        return str(error).partition(": ")[2]
    return None
