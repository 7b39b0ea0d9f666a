"""The growth of PostgreSQL with each staging object, for docs/postgresql.md and docs/sizing.md."""

from __future__ import annotations

from bench.sizing import ARCHIVED_BYTES, METADATA_BYTES
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import world as world
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
OBJECTS = 300
KEYS = 20_000
_SIZE = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'prism%%'"


def size_after(world: World, number: int) -> int:
    """Converts objects with keys of 100 characters; returns the bytes of all tables, once dead rows are free again."""
    for place, row in enumerate(some_rows(OBJECTS, utc(NOON))):
        host = f"ip-10-0-{place % 250}-17.eu-west-1.compute.internal"
        world.drop([row], name=f"03/01/prod/{host}/{number}{place:07}-4f3a9c1b22d07e51-0001")
    assert world.stream(NOON).errors == ()
    with world.context.database.outside_transactions() as connection:
        connection.exec_driver_sql("VACUUM")
        return int(connection.exec_driver_sql(_SIZE).scalar_one())


def test_a_staging_object_takes_the_kilobyte_that_the_pages_name(world: World) -> None:
    """The first objects fill new pages, so the later ones count."""
    world.apply(a_table())
    size_after(world, 0)
    before = size_after(world, 1)
    size_after(world, 2)
    grown = size_after(world, 3) - before
    assert 0.6 < grown / (2 * OBJECTS) / METADATA_BYTES < 1.5


def test_an_archived_object_takes_the_tenth_that_the_pages_name(world: World) -> None:
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_archived_keys (key_digest, prism_table_id, prism_stream_id, last_date) "
            f"SELECT prism_key_digest('staging', CAST(n AS text)), 1, 1, date '{DAY}' + n %% 365 "
            f"FROM generate_series(1, {KEYS}) n"
        )
        size = connection.exec_driver_sql("SELECT pg_total_relation_size('prism_archived_keys')").scalar_one()
    assert 0.6 < size / KEYS / ARCHIVED_BYTES < 1.5
