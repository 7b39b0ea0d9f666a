"""Heartbeats keep leases, and a process that stands still during one keeps no lock."""

from __future__ import annotations

import threading

from sqlalchemy import Connection, text

from prism_assets.metadata import leases
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.heartbeats import Heartbeat
from prism_assets_tests.world import World

PATIENCE = 120


def test_a_process_that_stands_still_during_a_heartbeat_keeps_no_lock_of_its_lease(world: World) -> None:
    database = world.context.database
    with database.begin() as connection:
        taken = leases.take(connection, LeaseKind.CATALOG, [1], "me", 60)
    stands, goes_on = threading.Event(), threading.Event()

    def beat(connection: Connection) -> None:
        assert leases.renew(connection, taken) == 1
        stands.set()
        assert goes_on.wait(PATIENCE)

    with Heartbeat(database, 0.03, beat):
        try:
            assert stands.wait(PATIENCE)
            with database.begin() as connection:
                found = connection.execute(text("SELECT worker FROM prism_leases FOR UPDATE NOWAIT")).scalar_one()
        finally:
            goes_on.set()
    assert found == "me"
