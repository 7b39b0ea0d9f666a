"""Checks the protobuf streams of a table file for `prism table apply`."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.columns.column import Column
from prism_assets.domain.names import did_you_mean
from prism_assets.domain.streams.sources import Constant, Fact, Pattern, Rest, keys_of, sources_of
from prism_assets.domain.streams.stream import ProtobufFormat
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import RowProgram
from prism_assets.kernels.protobuf.messages import DescriptorError, find_message


def problems_of_streams(table: TableDefinition) -> list[str]:
    """Returns each problem as a line `path:line: field: message`."""
    fields: set[str] = set()
    problems = []
    for number, stream in enumerate(table.streams):
        if not isinstance(stream.format, ProtobufFormat):
            continue
        try:
            fields.update(field.name for field in find_message(stream.format).fields)
        except DescriptorError as error:
            place = f"streams[{number}].format.protobuf"
            problems.append(f"{table.places.get(place) or f'{table.path}:1: {place}'}: {error}")
    if not problems and all(isinstance(stream.format, ProtobufFormat) for stream in table.streams):
        problems += _columns_of_nothing(table, fields)
    return problems


def _columns_of_nothing(table: TableDefinition, fields: set[str]) -> Iterator[str]:
    """Yields columns no message can fill, because the message type has no such field."""
    programs = [RowProgram.of(table.for_stream(stream)) for stream in table.streams]
    for column in RowProgram.of(table).reads:
        keys = keys_of(sources_of(column))
        same_name = [one for program in programs for one in program.columns if one.name == column.name]
        if any(one.value is not None or _is_filled(one, fields) for one in same_name):
            continue
        near = next((near for key in keys if (near := did_you_mean(key, fields))), "")
        yield f"{table.path}:1: columns: {column.name} reads {', '.join(keys)}, which no message has as a field{near}"


def _is_filled(column: Column, fields: set[str]) -> bool:
    sources = sources_of(column)
    return any(isinstance(source, Constant | Fact | Pattern | Rest) for source in sources) or bool(
        fields.intersection(keys_of(sources))
    )
