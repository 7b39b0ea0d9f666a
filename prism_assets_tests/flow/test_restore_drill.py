"""PostgreSQL is restored from a dump: what is told, what is repeated, and that no row is lost, doubled or back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from prism_assets_tests.flow.restore_drill import SETTINGS, Drill, Life
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

SHORT = ((1, 2), (4, 2))
"""Moments in the life of a table, and the steps that a restore loses."""
LONG = tuple((moment, lost) for moment in range(1, 8) for lost in (1, 2) if moment + lost <= 8)
PUBLISHED, UPLOADED, ERASED = "catalog", "foreign", "missing_erasure"
"""Kinds of findings: a publication is ahead of the records, an upload has no record, and an erasure is missing."""
LOST_FILES = "missing_iceberg_files"
"""Kind of the finding on a restored catalog of Iceberg that shows metadata of before an erasure."""
TOLD = {
    (1, 1): {UPLOADED},
    (1, 2): {UPLOADED, PUBLISHED},
    (3, 2): {ERASED},
    (4, 1): {ERASED},
    (4, 2): {ERASED},
    (5, 1): set(),
}
"""The kinds for each restore; of the others, `PUBLISHED`."""


@pytest.fixture
def world(services: Mapping[str, str], database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, **SETTINGS) as made:
        yield made


@pytest.mark.parametrize(("moment", "lost"), LONG)
def test_a_restore_loses_no_row(
    world: World, postgres: PostgresServer, tmp_path: Path, long: bool, moment: int, lost: int
) -> None:
    if not long and (moment, lost) not in SHORT:
        pytest.skip("with --long")
    drill = Drill(Life(world), postgres, tmp_path)
    try:
        drill.play(moment, lost)
        told = {finding.kind for finding in drill.told()}
        assert told - {LOST_FILES} == TOLD.get((moment, lost), {PUBLISHED})
        assert LOST_FILES in told or (moment, lost) != (6, 1), "the erasure ended the restored metadata"
        drill.start_again()
        life = drill.life
        assert life.world.ids() == life.wanted
        assert life.world.iceberg_ids() == life.wanted
        assert quarantined(life.world) == 1
        assert drill.told() == ()
    finally:
        drill.close()


def quarantined(world: World) -> int:
    """Lines set aside, by the ledger of objects."""
    with world.context.database.begin() as connection:
        return int(connection.exec_driver_sql("SELECT sum(rows_quarantined) FROM prism_staging_objects").scalar_one())
