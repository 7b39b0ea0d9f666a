"""The begin of rewrites under a lease: each day gets a number of its own, or a table one for its records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.rewrites import Rewrite, RewriteKind
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import leases
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.rewrites import rewrites
from prism_assets.stages.context import StageContext


def begin_rewrites(
    context: StageContext, lease: Lease, table: TableDefinition, days: Iterable[Partition], kind: RewriteKind
) -> dict[int, Rewrite]:
    """Begins a rewrite of every day of a table in one transaction. Returns the rewrites by partition id.

    After a death nobody can commit these rewrites, and garbage collection drops them.
    """
    partitions = {day.partition_id: day for day in days}
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        return {
            number: rewrites.begin(
                connection,
                partitions[number],
                kind,
                definition_version=table.version,
                worker=context.worker,
                lease_token=lease.token,
            )
            for number in sorted(partitions)
        }


def begin_record_rewrite(
    context: StageContext,
    connection: Connection,
    lease: Lease,
    table: TableDefinition,
    kind: RewriteKind,
    settle_before: datetime | None = None,
) -> int:
    """Begins a rewrite of a table's records under its lease of folds, and returns its number.

    Drops the rewrite of an earlier worker that died. If this worker dies, too, the next call drops its rewrite.
    """
    leases.hold(connection, lease)
    return rewrites.begin_of_table(
        connection,
        table.table_id,
        kind,
        definition_version=table.version,
        settle_before=settle_before,
        worker=context.worker,
    )
