"""Iceberg tables as PostgreSQL records them."""

from __future__ import annotations

from prism_assets.domain.iceberg.snapshots import KnownTable
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.metadata.invariants import begin_reading
from prism_assets.stages.context import StageContext


def load_created_table(context: StageContext, table: TableDefinition) -> KnownTable | None:
    """Returns the recorded Iceberg table, or None if no publication has created it yet."""
    with context.database.begin() as connection:
        begin_reading(connection)
        known = iceberg_tables.load_known_tables(connection, [table.table_id]).get(table.table_id)
    return known if known is not None and known.table_uuid is not None else None
