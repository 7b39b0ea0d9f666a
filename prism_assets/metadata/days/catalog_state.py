"""Statements on prism_table_publications: each publisher's state of a table, and its last comparison.

A row exists as long as a publisher's catalog may show the table. From then on a trigger marks changed days as dirty for
the publisher, and garbage collection keeps the objects its readers need.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days import partitions
from prism_assets.metadata.days.publication_intents import ComparisonDue, load_comparisons_due
from prism_assets.metadata.tables.former_names import load_former_names


@dataclass(frozen=True, kw_only=True)
class CatalogState:
    """The recorded state of a table in a publisher's catalog at `time`."""

    publisher: str
    definition: TableDefinition
    defined_version: int
    """The definition version last shown."""
    comparison_due: ComparisonDue | None
    time: datetime
    ended_names: tuple[TableName, ...] = ()
    """Former names the catalog shall remove."""


def load_catalog_state(
    connection: Connection, table_id: int, publisher: str, compare_seconds: float, lease_seconds: float | None = None
) -> CatalogState:
    """Returns the state left by a table's last catalog runs. `lease_seconds` as in `load_comparisons_due`. Reads
    without locks.

    For a publisher never started, the version is 0.
    """
    row = connection.execute(text(_IN_FORCE), {"table": table_id, "publisher": publisher}).one()
    due = load_comparisons_due(connection, [table_id], compare_seconds, lease_seconds)
    former = [item for item in load_former_names(connection) if item.table_id == table_id]
    return CatalogState(
        publisher=publisher,
        definition=replace(
            TableDefinition.from_document(row.definition),
            former=tuple(item.name for item in former if not item.has_ended),
        ),
        ended_names=tuple(item.name for item in former if item.has_ended and publisher not in item.removed_from),
        defined_version=row.defined_version,
        comparison_due=due.get((table_id, publisher)),
        time=row.time,
    )


_IN_FORCE = """
SELECT d.definition, coalesce(p.defined_version, 0) AS defined_version, clock_timestamp() AS time FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
LEFT JOIN prism_table_publications p ON p.prism_table_id = t.prism_table_id AND p.publisher = :publisher
WHERE t.prism_table_id = :table
"""


def load_publishers(connection: Connection, table_ids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Returns the publishers whose catalogs may show each table. Reads without locks."""
    rows = connection.execute(text(_PUBLISHERS), {"tables": list(table_ids)})
    return {**dict.fromkeys(table_ids, ()), **{row.prism_table_id: tuple(row.publishers) for row in rows}}


_PUBLISHERS = """
SELECT prism_table_id, array_agg(publisher ORDER BY publisher) AS publishers FROM prism_table_publications
WHERE prism_table_id = ANY(:tables) GROUP BY prism_table_id
"""


def begin(connection: Connection, table_id: int, publisher: str) -> None:
    """Records that a publisher shows a table from now on, and marks all closed days with content as dirty.

    Locks the rows of all partitions in id order. Earlier changes are committed and marked dirty here; later ones are
    marked by the trigger.
    """
    values = {"table": table_id, "publisher": publisher}
    connection.execute(text(_BEGIN), values)
    partitions.lock_all(connection, [table_id])
    connection.execute(text(_MARK_DAYS), values)


_BEGIN = """
INSERT INTO prism_table_publications (prism_table_id, publisher) VALUES (:table, :publisher) ON CONFLICT DO NOTHING
"""
_MARK_DAYS = """
INSERT INTO prism_publications AS q (prism_partition_id, publisher, version, published_object_id, revision, dirty)
SELECT prism_partition_id, :publisher, -1, 0, 0, true FROM prism_partitions
WHERE prism_table_id = :table AND last_live_object_id IS NOT NULL AND expire_time IS NULL
    AND (desired_manifest_version > 0 OR NOT switched AND last_object_id > 0)
ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty
"""


def end(connection: Connection, table_id: int, publisher: str) -> bool:
    """Records that a publisher no longer shows a table.

    Returns False, without a change, if an earlier call may still land and show it.

    Readers may still use its objects; garbage collection goes by the time of this record. Locks the rows of all
    partitions in id order, like the record of a publication.
    """
    values = {"table": table_id, "publisher": publisher}
    partitions.lock_all(connection, [table_id])
    if not connection.execute(text(_END), values).rowcount:
        return False
    connection.execute(text(_WITHDRAW_ALL), values)
    return True


_WITHDRAW_ALL = """
UPDATE prism_publications q SET version = -1, published_object_id = 0, revision = 0, dirty = false,
    withdraw_time = clock_timestamp()
FROM prism_partitions p
WHERE p.prism_partition_id = q.prism_partition_id AND p.prism_table_id = :table AND q.publisher = :publisher
    AND (q.version >= 0 OR q.dirty)
"""
_END = """
DELETE FROM prism_table_publications t WHERE t.prism_table_id = :table AND t.publisher = :publisher AND NOT EXISTS (
    SELECT 1 FROM prism_publication_intents n WHERE n.prism_table_id = t.prism_table_id AND n.publisher = t.publisher)
"""


def undefined_tables(connection: Connection) -> set[int]:
    """Returns ids of tables shown under an outdated definition or an ended name. Reads without locks."""
    return set(connection.execute(text(_UNDEFINED)).scalars())


_UNDEFINED = """
SELECT prism_table_id FROM prism_tables JOIN prism_table_publications USING (prism_table_id)
WHERE defined_version <> definition_version
UNION SELECT prism_table_id FROM prism_former_names WHERE remove_time IS NULL AND end_time <= clock_timestamp()
"""


def record_comparison(connection: Connection, table_id: int, publisher: str, time: datetime) -> None:
    """Records a comparison that began at `time` and found no difference. Times only increase. Locks the row."""
    connection.execute(text(_RECORD_COMPARISON), {"table": table_id, "publisher": publisher, "time": time})


_RECORD_COMPARISON = """
UPDATE prism_table_publications SET compared_time = greatest(compared_time, :time)
WHERE prism_table_id = :table AND publisher = :publisher
"""


def record_definition(connection: Connection, known: CatalogState, now: datetime, *, was_other: bool) -> None:
    """Records the definition version shown by a catalog. Versions only increase. Locks the row.

    `known.definition` is the version the run defined, even if a newer one exists now. The first version with the last
    step of a rename also sets the time of that step. So does a catalog with another definition than recorded
    (`was_other`). The time is the run's clock: `now` when it loaded `known`, plus the time since.
    """
    values = {
        "table": known.definition.table_id,
        "publisher": known.publisher,
        "version": known.definition.version,
        "step": known.definition.rename_step,
        "was_other": was_other,
        "now": now,
        "known": known.time,
    }
    connection.execute(text(_RECORD_DEFINITION), values)


_RECORD_DEFINITION = """
UPDATE prism_table_publications SET defined_version = greatest(defined_version, :version),
    renamed_time = CASE WHEN :was_other OR defined_version < :step
        THEN CAST(:now AS timestamptz) + (clock_timestamp() - CAST(:known AS timestamptz)) ELSE renamed_time END
WHERE prism_table_id = :table AND publisher = :publisher AND (defined_version < :version OR :was_other)
"""
