"""Erasures of open days with Dagster alone: the sensors see to them minutes after the close."""

from __future__ import annotations

import pytest
from dagster import DagsterInstance

from prism_assets.defs.keys import asset_key
from prism_assets.stages.erase.run import run_erase
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_delayed_data import LATE, LATE_DAY, as_requested, by_hand
from prism_assets_tests.defs.test_sensors import asked, tick
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


def test_rows_of_a_day_that_has_closed_are_erased_by_runs_that_sensors_request(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    rows = some_rows(20, LATE_DAY)
    settled.drop(rows)
    ids = [row["id"] for row in rows]
    by_hand(instance, location, "live", LATE)
    status = run_erase(settled.context, "log.events", f"id = {ids[0]}").erasures[0]
    assert (status.state, status.open_rows) == ("rewriting", 1)
    assert not tick(instance, location, "merges_due").run_requests, "the day is open"

    by_hand(instance, location, "catalog", LATE)
    assert settled.ids() == ids, "it closed, and shows the rows of before"
    request = tick(instance, location, "merges_due")
    assert asked(request) == [asset_key("log.events", "merged")]
    assert [item.partition_key for item in request.run_requests or ()] == [LATE]
    as_requested(instance, location, request)
    assert not tick(instance, location, "merges_due").run_requests, "nothing is left to do"

    as_requested(instance, location, tick(instance, location, "catalog_work"))
    assert settled.ids() == ids[1:]
