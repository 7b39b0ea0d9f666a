"""Checks the sources around records: each stream of the table must have documents with such a place."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.streams.documents import outer_key
from prism_assets.domain.streams.sources import OUTER, Outer, sources_of
from prism_assets.domain.streams.stream import DocumentFormat, Stream
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import RowProgram


def outer_problems(table: TableDefinition) -> Iterator[str]:
    """Yields each problem as a line `path:line: field: message`."""
    for stream in table.streams:
        for column in RowProgram.of(table.for_stream(stream)).reads:
            for source in sources_of(column):
                if isinstance(source, Outer) and (problem := _problem(stream, source)):
                    yield f"{table.path}:1: columns: {column.name} reads {column.source}: {problem}"


def _problem(stream: Stream, source: Outer) -> str | None:
    if stream.topic is not None:
        return (
            f"the stream {stream.name} reads a topic, whose messages have nothing around them: give the column a "
            "source of its own below the stream, such as @key or @header.NAME"
        )
    if not isinstance(stream.format, DocumentFormat):
        return (
            f"the stream {stream.name} has no documents, and so nothing around its records: give it a format, such as "
            f"{{json: {{records: $.Records[*]}}}}, or the column a source of its own below the stream"
        )
    try:
        outer_key(stream.format.steps, source.steps)
    except ValueError as error:
        return (
            f"records of the stream {stream.name} lie at {stream.format.records}, and {error}; {OUTER} reads keys "
            "beside that way"
        )
    return None
