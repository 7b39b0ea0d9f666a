"""Copies of rewritten objects, which readers of open days list: looked at, and made again where they differ."""

from __future__ import annotations

from sqlalchemy import Connection

from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import leases, live_copies
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext
from prism_assets.stages.live_copies import put_copy
from prism_assets.stages.repair.plan import Suspect


def find_fault(context: StageContext, suspect: Suspect) -> str | None:
    """What is wrong with a copy; None if it is the same as the object that it was made of."""
    known = suspect.known
    if suspect.fault or context.stores.get(known.bucket, suspect.key) == context.stores.get(known.bucket, known.key):
        return suspect.fault
    return f"is not the same as {known.key}, which it was made of"


def copy_again(context: StageContext, table: TableDefinition, suspect: Suspect, lease: Lease) -> bool:
    """Makes a copy again; False if the object was rewritten meanwhile, and is another one now.

    The caller has repaired what it is made of, and holds the lease of repairs of the day.
    """
    known = suspect.known

    def is_wanted(connection: Connection) -> bool:
        leases.hold(connection, lease)
        return live_copies.live_revision(connection, known.object_id, known.rewrite_id) == known.rewrite_id

    return put_copy(context, context.lake.keys(table), known, is_wanted)
