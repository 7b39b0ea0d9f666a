"""Iceberg tables with missing files.

A restored PostgreSQL, as the catalog, may name metadata that was deleted after the backup.
"""

from __future__ import annotations

import time

from prism_assets.domain.findings import Finding
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.publishers.iceberg.publisher import MetadataMissing
from prism_assets.stages.context import StageContext
from prism_assets.stages.doctor.recorded import load_created_table

_LOOKS = 3
_PAUSE_SECONDS = 0.5


def look_at_snapshots(context: StageContext, table: TableDefinition) -> list[Finding]:
    """Returns a finding if a file of a retained snapshot is missing.

    A commit may expire a snapshot during a look, so only a file that every look misses counts. A table without its
    metadata file is no finding: the next publication makes it again.
    """
    if (known := load_created_table(context, table)) is None:
        return []
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_SECONDS)
        try:
            loaded = context.iceberg.load(table)
        except MetadataMissing:
            return []
        if loaded is None or loaded.table_uuid != known.table_uuid or context.iceberg.is_whole(table, loaded):
            return []
    return [
        Finding(
            invariant="I4",
            kind="missing_iceberg_files",
            table=str(table.name),
            says=f"snapshots of its Iceberg table {known.identifier} name missing files",
            remedy=f"`prism iceberg register --anew {table.name}` makes the table again over the same objects; its "
            "snapshots are lost",
        )
    ]
