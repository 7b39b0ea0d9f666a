"""Other names of a table's columns, for commands in which a person names a column."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from prism_assets.domain.columns.names import OtherNames, names_in_force
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import clock
from prism_assets.metadata.tables import column_names
from prism_assets.stages.catalog.column_transitions import read_transitions
from prism_assets.stages.context import StageContext


def other_names(context: StageContext, table: TableDefinition) -> OtherNames:
    """Returns the former names of current columns, each with the names visible in Glue."""
    with context.database.begin() as connection:
        former = column_names.load_former_column_names(connection, table.table_id)
        seen = dict(_seen_in_glue(context, connection, table)) if former else {}
    return names_in_force(table.columns, former, seen)


def names_for_readers(context: StageContext, name: str) -> OtherNames:
    """Returns column names of `schema.table` that Glue does not show: former names and coming ones.

    Empty for an unknown table.
    """
    found = {str(table.name): table for table in context.choose_tables(None)}
    if name not in found:
        return {}
    table = found[name]
    with context.database.begin() as connection:
        seen = dict(_seen_in_glue(context, connection, table))
    coming = {
        column.name: f"{column.name} is the new name of {column.glue_name}{seen.get(column.column_id, '')}"
        for column in table.columns
        if column.glue_name != column.name
    }
    return {**other_names(context, table), **coming}


def _seen_in_glue(context: StageContext, connection: Connection, table: TableDefinition) -> Iterator[tuple[int, str]]:
    """Yields the names visible in Glue of each column in a rename, by column id."""
    now = clock.database_time(connection)
    ids = {column.name: column for column in table.columns}
    for item in read_transitions(context, connection, table, now):
        column = ids[item.column]
        if not item.is_widening and column.rename:
            names = {column.glue_name, *(known for known, one in table.glue_columns if one is column)}
            yield (
                column.column_id,
                f"; readers of Glue, `prism query` among them, see {' and '.join(sorted(names))}: {item.outlook}",
            )
