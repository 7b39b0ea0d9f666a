"""kill -9 while a database and its lake are joined: nobody works meanwhile, and the next apply completes the join."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from prism_assets.domain.errors import WrongLake
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.crash.processes import run
from prism_assets_tests.stages.test_installation import MARKER, with_settings
from prism_assets_tests.world import World

COMMAND = ("table", "apply")
POINTS = ("apply.after_identity", "apply.after_marker")
NOON = "2026-03-01T12:00"


@pytest.fixture
def apart(world: World) -> World:
    """A database with rows and a lake, not joined."""
    world.apply(a_table())
    world.drop(some_rows(2, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    world.drop(some_rows(2, utc(NOON)))
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM prism_installation")
    world.context.stores.delete("lake", [MARKER])
    return with_settings(world)


def test_an_apply_reaches_every_failpoint_of_the_list(apart: World, tmp_path: Path) -> None:
    log = tmp_path / "points"
    status, output = run(apart, *COMMAND, PRISM_FAILPOINTS_LOG=str(log))
    assert status == 0, output
    assert log.read_text().split() == list(POINTS)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", ["kill9", "raise(StoreUnavailable)"])
def test_an_apply_that_died_while_it_took_the_lake_is_ended_by_the_next(apart: World, point: str, action: str) -> None:
    status, output = run(apart, *COMMAND, PRISM_FAILPOINTS=f"{point}={action}")
    assert status == (-signal.SIGKILL if action == "kill9" else 1), f"it did not happen: {output}"
    ids = apart.ids()
    with pytest.raises(WrongLake, match="run `prism table apply`"):
        with_settings(apart).stream(NOON)
    assert apart.ids() == ids
    status, output = run(apart, *COMMAND)
    assert status == 0, output
    assert apart.stream(NOON).rows_out == 2
    apart.catalog(NOON)
    assert len(apart.ids()) == 4


def test_a_database_whose_apply_died_before_the_marker_may_take_another_lake(world: World) -> None:
    """Somebody notices wrong settings just then."""
    (world.settings.tables_dir).mkdir()
    (world.settings.tables_dir / "events.yaml").write_text(a_table())
    status, output = run(world, *COMMAND, PRISM_FAILPOINTS=f"{POINTS[0]}=kill9")
    assert status == -signal.SIGKILL, output
    other = with_settings(world, prefix="other/")
    assert other.apply().lines[0] == "take s3://lake/other/ as the lake of this database"
    assert [item.key for item in world.context.stores.list("lake", "")] == [f"other/{MARKER}"]
