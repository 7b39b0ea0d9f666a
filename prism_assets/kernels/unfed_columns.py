"""Finds columns that no stream of a table can fill, where the formats of all streams name their fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from prism_assets.domain.columns.column import Column
from prism_assets.domain.names import did_you_mean
from prism_assets.domain.streams.sources import Constant, Fact, Pattern, Rest, keys_of, message_fact, sources_of
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import RowProgram


def unfed_columns(table: TableDefinition, fields: Collection[str], why: str) -> Iterator[str]:
    """Yields each unfed column as a line `path:line: field: message`. `fields` are all fields of all streams."""
    programs = [RowProgram.of(table.for_stream(stream)) for stream in table.streams]
    for column in RowProgram.of(table).reads:
        keys = keys_of(sources_of(column))
        same_name = [
            (one, stream.topic is not None)
            for program, stream in zip(programs, table.streams, strict=True)
            for one in program.columns
            if one.name == column.name
        ]
        if any(one.value is not None or _is_filled(one, fields, messages) for one, messages in same_name):
            continue
        near = next((near for key in keys if (near := did_you_mean(key, fields))), "")
        yield f"{table.path}:1: columns: {column.name} reads {', '.join(keys)}, {why}{near}"


def _is_filled(column: Column, fields: Collection[str], messages: bool) -> bool:
    sources = sources_of(column)
    return any(
        isinstance(source, Constant | Fact | Pattern | Rest) or (messages and message_fact(source) is not None)
        for source in sources
    ) or any(key in fields for key in keys_of(sources))
