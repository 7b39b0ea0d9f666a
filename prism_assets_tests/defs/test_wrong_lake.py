"""Dagster with settings that name another lake: sensors and runs refuse before they do anything."""

from __future__ import annotations

import pytest
from dagster import DagsterInstance
from dagster._core.errors import DagsterUserCodeProcessError

from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_runs import NOW, run
from prism_assets_tests.defs.test_sensors import said, tick
from prism_assets_tests.flow.test_life_of_a_partition import _everything
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


@pytest.fixture
def elsewhere(settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> World:
    """A lake with rows and with work for every stage, and settings that name another one."""
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(2, NOW))
    assert run(instance, location, ["live"]).success
    settled.drop(some_rows(2, NOW))
    monkeypatch.setenv("PRISM_PREFIX", "other/")
    return settled


@pytest.mark.parametrize("sensor", ["new_objects", "merges_due", "delayed_data", "catalog_work"])
def test_a_sensor_that_starts_work_fails_and_says_why(elsewhere: World, instance: DagsterInstance, sensor: str) -> None:
    before = _everything(elsewhere)
    with pytest.raises(DagsterUserCodeProcessError, match="belongs to the lake s3://lake/, and the settings name"):
        tick(instance, a_location(elsewhere.root, a_table()), sensor)
    assert _everything(elsewhere) == before


@pytest.mark.parametrize("part", ["live", "merged", "catalog"])
def test_a_run_fails_and_changes_nothing(elsewhere: World, instance: DagsterInstance, part: str) -> None:
    before = _everything(elsewhere)
    result = run(instance, a_location(elsewhere.root, a_table()), [part])
    assert not result.success
    assert _everything(elsewhere) == before


def test_a_changed_table_file_is_not_applied(elsewhere: World, instance: DagsterInstance) -> None:
    before = _everything(elsewhere)
    location = a_location(elsewhere.root, a_table(columns=["{name: color, type: string}"]))
    with pytest.raises(DagsterUserCodeProcessError, match="belongs to the lake"):
        tick(instance, location, "new_objects")
    assert _everything(elsewhere) == before


def test_an_installation_from_before_markers_takes_its_lake_by_itself(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(2, NOW))
    assert run(instance, location, ["live"]).success
    with settled.context.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM prism_installation")
    settled.context.stores.delete("lake", ["prism-installation.json"])
    assert "0 new of 1 object" in said(tick(instance, location, "new_objects"))
    assert settled.context.installation.marked
