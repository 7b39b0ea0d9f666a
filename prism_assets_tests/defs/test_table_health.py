"""The asset of a whole table: one look says whether the table is healthy, and the check there says it again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetMaterialization,
    AssetSelection,
    DagsterInstance,
    SensorResult,
    TableMetadataValue,
    materialize,
)

from prism_assets.defs.checks.runless import report_changes
from prism_assets.defs.checks.table import build_table_checks
from prism_assets.defs.health import HEALTHY, Health
from prism_assets.defs.keys import table_key
from prism_assets.defs.location import Location
from prism_assets.defs.resources import build_platform
from prism_assets.stages.checks.days import CATALOG_AGREES
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.status import TableStatus
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_runs import NOW, assets_of, run
from prism_assets_tests.defs.test_sensors import said, tick
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

KEY = table_key("log.events")


def reported(result: SensorResult) -> dict[str, tuple[AssetMaterialization, AssetCheckEvaluation]]:
    """Returns the reports of a tick by table."""
    events = list(result.asset_events)
    made = {event.asset_key.path[1]: event for event in events if isinstance(event, AssetMaterialization)}
    checked = {event.asset_key.path[1]: event for event in events if isinstance(event, AssetCheckEvaluation)}
    assert made.keys() == checked.keys()
    return {name: (made[name], checked[name]) for name in made}


def facts(result: SensorResult) -> dict[str, Any]:
    return {name: value.value for name, value in reported(result)["log.events"][0].metadata.items()}


def test_one_look_says_whether_a_table_is_healthy(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop([*some_rows(3, NOW), *some_rows(2, NOW - timedelta(days=1))])
    run(instance, location, ["live", "catalog"])
    first = tick(instance, location, "table_health")
    event, check = reported(first)["log.events"]
    assert (event.asset_key, event.partition) == (KEY, None)
    assert check.passed, check.description
    found = facts(first)
    assert (found["dagster/row_count"], found["rows of the newest day"], found["staging objects pending"]) == (5, 3, 0)
    table = event.metadata["newest days"]
    assert isinstance(table, TableMetadataValue)
    assert len(table.records) == 2
    assert "rows" in found["ledger"] or "lines" in found["ledger"]
    assert found["rows by day"].startswith("![rows by day](data:image/svg+xml;base64,")

    quiet = tick(instance, location, "table_health", first.cursor)
    assert not quiet.asset_events
    assert said(quiet) == "1 of 1 table looked at, 0 need somebody; 0 reported"


def test_a_table_that_becomes_unhealthy_is_reported_at_once_and_again_when_it_is_healthy(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    cursor = tick(instance, location, "table_health").cursor
    settled.drop([], body=b"{broken\n" * 5)
    run(instance, location, ["live", "catalog"])
    sick = tick(instance, location, "table_health", cursor)
    _, check = reported(sick)["log.events"]
    assert not check.passed
    assert "quarantine_rate" in (check.description or "")
    assert "quarantine_rate" in facts(sick)["problems"]
    assert said_reason(sick) == "1 of 1 table looked at, 1 needs somebody: log.events; 1 reported"

    loose = a_location(settled.root, a_table() + "checks: {quarantine_rate: 1.0}\n")
    _, check = reported(tick(instance, loose, "table_health", sick.cursor))["log.events"]
    assert check.passed, check.description


def test_a_table_whose_catalog_differs_is_unhealthy_by_the_last_check_of_the_catalog(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._ENOUGH_SECONDS", 3_600.0)
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    known = checks(instance, location)
    before = tick(instance, location, "table_health")
    assert reported(before)["log.events"][1].passed
    settled.glue.remove(settled.context.choose_tables(None)[0])
    differs = checks(instance, location, known.cursor)
    with monkeypatch.context() as patch:
        patch.setenv("PRISM_GLUE_ENDPOINT", "http://127.0.0.1:1")
        sick = tick(instance, location, "table_health", before.cursor)
    _, check = reported(sick)["log.events"]
    assert not check.passed
    assert (check.description or "").startswith("catalog_agrees: ")

    settled.catalog(NOW.strftime("%Y-%m-%dT%H:%M"), republish=True)
    checks(instance, location, differs.cursor)
    assert reported(tick(instance, location, "table_health", sick.cursor))["log.events"][1].passed


def test_a_failure_of_the_catalog_that_a_person_found_ends_with_the_next_check_of_the_sensor(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._ENOUGH_SECONDS", 3_600.0)
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    known = checks(instance, location)
    wrong = CheckOutcome(table="log.events", check=CATALOG_AGREES, passed=False, sentence="a day is missing")
    assert report_changes(instance, [wrong]) == [wrong]
    assert not reported(tick(instance, location, "table_health"))["log.events"][1].passed
    checks(instance, location, known.cursor)
    assert reported(tick(instance, location, "table_health"))["log.events"][1].passed


def checks(instance: DagsterInstance, location: Location, cursor: str | None = None) -> SensorResult:
    """One tick of table_checks, whose events the daemon stores."""
    result = tick(instance, location, "table_checks", cursor)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    return result


def said_reason(result: SensorResult) -> str:
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def test_more_rows_are_reported_after_an_hour_and_not_with_every_tick(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    cursor = tick(instance, location, "table_health").cursor
    settled.drop(some_rows(4, NOW))
    run(instance, location, ["live", "catalog"])
    assert not tick(instance, location, "table_health", cursor).asset_events
    monkeypatch.setattr("prism_assets.defs.sensors.table_health._PACE", timedelta())
    assert facts(tick(instance, location, "table_health", cursor))["dagster/row_count"] == 7


def test_tables_take_turns_where_a_tick_cannot_read_all(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_health._GROUP", 1)
    monkeypatch.setattr("prism_assets.defs.sensors.table_health._ENOUGH_SECONDS", 0.0)
    location = a_location(settled.root, *(a_table(f"log.t{number}") for number in range(3)))
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        result = tick(instance, location, "table_health", cursor)
        seen += reported(result)
        cursor = result.cursor
    assert seen == ["log.t0", "log.t1", "log.t2"]


def test_a_person_runs_the_check_of_one_table(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.other"))
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    result = materialize(
        [*assets_of(location), *build_table_checks(location)],
        selection=AssetSelection.checks(AssetCheckKey(KEY, HEALTHY)),
        resources=build_platform(),
        instance=instance,
    )
    (check,) = result.get_asset_check_evaluations()
    assert (check.asset_key, check.passed) == (KEY, True)
    assert check.metadata["dagster/row_count"].value == 3


def test_another_problem_of_an_unhealthy_table_is_news() -> None:
    """The page would show a problem that ended, as long as no row comes."""
    first, second = (
        Health(
            TableStatus(table="log.events"), (CheckOutcome(table="log.events", check=name, passed=False, sentence=""),)
        )
        for name in ("one", "other")
    )
    assert first.signal == second.signal
    assert first.mark != second.mark
