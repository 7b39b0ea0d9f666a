"""What the snapshots of an Iceberg table need: garbage collection asks them before it deletes anything of the table."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import iceberg_tables
from prism_assets.stages.context import StageContext


def load_iceberg_needs(
    context: StageContext, table: TableDefinition, days: Collection[date] | None
) -> frozenset[str] | None:
    """What is needed of the given days, or of all, and the table's own files; None if it is not published as Iceberg.

    Keys, and folders of days, ending with `/`, as `Publisher.needed_keys` says them.
    Every object in a retained snapshot, branch or tag, whoever made it; and all of days that are dirty: a commit that
    was planned before an object became garbage may still list it, and leaves its day dirty until a later one does not.
    These days are read before the snapshots are, so that a commit in between is among the snapshots. InvariantBroken,
    or an error of the catalog, where it cannot be told: nothing of the table is deleted then.
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
