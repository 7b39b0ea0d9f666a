"""Statements about what the catalog shows of a table: the version of its definition, and when it was compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.names import TableName
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata.publication_notes import ComparisonDue, load_comparisons_due
from prism_assets.metadata.tables import load_former_names


@dataclass(frozen=True, kw_only=True)
class CatalogState:
    """What is known of a table in the catalog, at `time`: the definition in force, and the version last shown.

    `ended_names` are names of before that the catalog is to forget.
    """

    definition: TableDefinition
    defined_version: int
    comparison_due: ComparisonDue | None
    time: datetime
    ended_names: tuple[TableName, ...] = ()


def load_catalog_state(
    connection: Connection, table_id: int, compare_seconds: float, lease_seconds: float | None = None
) -> CatalogState:
    """What the last catalog runs of a table left; `lease_seconds` as for `load_comparisons_due`. Reads without locks."""
    row = connection.execute(text(_IN_FORCE), {"table": table_id}).one()
    former = [item for item in load_former_names(connection) if item.table_id == table_id]
    return CatalogState(
        definition=replace(
            TableDefinition.from_document(row.definition),
            former=tuple(item.name for item in former if not item.has_ended),
        ),
        ended_names=tuple(item.name for item in former if item.has_ended),
        defined_version=row.defined_version,
        comparison_due=load_comparisons_due(connection, [table_id], compare_seconds, lease_seconds).get(table_id),
        time=row.time,
    )


_IN_FORCE = """
SELECT d.definition, t.defined_version, clock_timestamp() AS time FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
WHERE t.prism_table_id = :table
"""


def undefined_tables(connection: Connection) -> set[int]:
    """Ids of the tables that the catalog shows under another definition, or a name too many. Reads without locks."""
    return set(connection.execute(text(_UNDEFINED)).scalars())


_UNDEFINED = """
SELECT prism_table_id FROM prism_tables WHERE defined_version <> definition_version
UNION SELECT prism_table_id FROM prism_former_names WHERE remove_time IS NULL AND end_time <= clock_timestamp()
"""


def record_comparison(connection: Connection, table_id: int, time: datetime) -> None:
    """Records that the catalog is as recorded, by a comparison that began at a time; upwards only. Locks the table's row."""
    connection.execute(text(_RECORD_COMPARISON), {"table": table_id, "time": time})


_RECORD_COMPARISON = """
UPDATE prism_tables SET compared_time = greatest(compared_time, :time)
WHERE prism_table_id = :table
"""


def record_definition(connection: Connection, table_id: int, version: int) -> None:
    """Records the version of the definition that the catalog shows, upwards only. Locks the table's row.

    It is the one that a run defined, also where a newer one came into force meanwhile: that is still to come.
    """
    connection.execute(text(_RECORD_DEFINITION), {"table": table_id, "version": version})


_RECORD_DEFINITION = """
UPDATE prism_tables SET defined_version = greatest(defined_version, :version)
WHERE prism_table_id = :table AND defined_version < :version
"""
