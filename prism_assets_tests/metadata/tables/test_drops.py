"""A drop waits for every worker that may still write objects of the table."""

from __future__ import annotations

import pytest

from prism_assets.metadata import leases
from prism_assets.metadata.database import Database
from prism_assets.metadata.leases import LeaseKind
from prism_assets.metadata.tables import drops
from prism_assets_tests.metadata.rows import Rows

SECONDS = 60.0
OF_NO_TABLE = (LeaseKind.WORKER,)
"""Such a lease has a random number, and the worker a lease of kind LIVE for each table."""
OF_A_DAY = (LeaseKind.REBUILD, LeaseKind.REPAIR)


@pytest.mark.parametrize("kind", LeaseKind)
def test_a_table_is_at_rest_once_no_worker_holds_a_lease_but_that_of_garbage_collection(
    database: Database, rows: Rows, kind: LeaseKind
) -> None:
    table = rows.table()
    subject = rows.partition(table) if kind in OF_A_DAY else table.table_id
    with database.begin() as connection:
        taken = leases.take(connection, kind, [subject], "me", SECONDS)
        assert drops.is_at_rest(connection, table.table_id, SECONDS) is (kind is LeaseKind.GC or kind in OF_NO_TABLE)
        leases.release(connection, taken)
        assert drops.is_at_rest(connection, table.table_id, SECONDS)
