"""Clients of DuckLake that reach PostgreSQL through a pooler in transaction mode."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.transaction_pooler import transaction_pooler
from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession

NOON = "2026-03-01T12:00"


def test_a_session_behind_a_pooler_sees_each_commit_and_leaves_nothing_behind(
    world: World, services: Mapping[str, str], duckdb_session: DuckDBSession
) -> None:
    world.apply(a_table())
    address = sqlalchemy.make_url(services["PRISM_DUCKLAKE_URL"])
    reader = address.set(database=sqlalchemy.make_url(world.settings.database_url.get_secret_value()).database)
    with transaction_pooler(reader.render_as_string(hide_password=False)) as pooler:
        lake = LakeOfTest(world, duckdb_session, pooler.url)
        for count in range(1, 9):
            world.drop(some_rows(2, utc(NOON)))
            world.stream(NOON)
            assert lake.query("SELECT count(*), count(DISTINCT id) FROM lake.log.events") == [(2 * count, 2 * count)]
        lake.detach()
        assert pooler.left_behind() == []
