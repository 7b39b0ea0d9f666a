"""Checks of a table file that need libraries of the kernels: the same for `prism table apply`, `test` and `try`."""

from __future__ import annotations

from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import RowProgram


def problems_of(table: TableDefinition) -> list[str]:
    """Returns what is wrong with expressions and formats, each problem as a line `path:line: field: message`.

    Imports DuckDB, protobuf and the kernels only for tables that use them.
    """
    problems: list[str] = []
    if any(RowProgram.of(reading).needs_checks for reading in table.readings):
        from prism_assets.kernels.expressions.check import problems_of_table

        problems += problems_of_table(table)
    if any(stream.message is not None for stream in table.streams):
        from prism_assets.kernels.protobuf.check import problems_of_messages

        problems += problems_of_messages(table)
    if any(isinstance(stream.format, TextFormat) for stream in table.streams):
        from prism_assets.kernels.text_lines.check import problems_of_text

        problems += problems_of_text(table)
    return problems
