"""Checks the protobuf streams of a table file for `prism table apply`."""

from __future__ import annotations

from prism_assets.domain.streams.stream import ProtobufFormat
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.protobuf.messages import DescriptorError, find_message
from prism_assets.kernels.unfed_columns import unfed_columns


def problems_of_messages(table: TableDefinition) -> list[str]:
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
        problems += unfed_columns(table, fields, "which no message has as a field")
    return problems
