"""Keys needed by an Iceberg table's snapshots. Garbage collection asks before it deletes objects of the table."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.stages.context import StageContext


def load_iceberg_needs(
    context: StageContext, table: TableDefinition, days: Collection[date] | None
) -> frozenset[str] | None:
    """Returns needed keys of the given days, or of all, with the table's own files. None if the table is not in
    Iceberg.

    The result has keys, and folders of days ending with `/`, as in `Publisher.needed_keys`. It covers every object in a
    retained snapshot, branch or tag, of any author, and dirty days entirely: a commit planned before an object became
    garbage may still list it, and leaves its day dirty until a later commit drops the object.

    Dirty days are read before the snapshots, so a commit in between is among the snapshots. Raises InvariantBroken or
    an error of the catalog if the needs are unknown; then no object of the table is deleted.
    """
    with context.database.begin() as connection:
        known = iceberg_tables.load_known_tables(connection, [table.table_id]).get(table.table_id)
        dirty = iceberg_tables.load_days(connection, table.table_id, dirty_only=True)
    if known is None:
        return None
    keys = context.lake.keys(table)
    folders = {
        folder for item in dirty if days is None or item.date in days for folder in keys.data_prefixes(item.date)
    }
    loaded = context.iceberg.load(table)
    if loaded is None or (known.table_uuid is not None and loaded.table_uuid != known.table_uuid):
        raise InvariantBroken(
            f"the catalog does not show the Iceberg table {known.identifier} that was published, so nobody can say "
            "what its snapshots need: `prism iceberg publish` puts it right, or says what is wrong"
        )
    return context.iceberg.needed_keys(loaded, days) | folders
