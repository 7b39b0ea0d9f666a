"""Checks as Dagster has them: with the run of a stage, alone, and every hour."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    AssetSelection,
    DagsterInstance,
    ExecuteInProcessResult,
    SensorResult,
    materialize,
)
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy
from sqlalchemy import text

from prism_assets.defs.checks.runless import last_outcomes
from prism_assets.defs.checks.specs import kinds_of
from prism_assets.defs.checks.table import build_table_checks
from prism_assets.defs.health import HEALTHY
from prism_assets.defs.keys import FAILED_TABLES_TAG, Stage, asset_key, part_of, table_key, table_of
from prism_assets.defs.location import Location
from prism_assets.defs.resources import build_platform
from prism_assets.defs.sensors.reported import Reported
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_runs import NOW, TODAY, YESTERDAY, assets_of, run
from prism_assets_tests.defs.test_sensors import tick
from prism_assets_tests.requests import a_join_table
from prism_assets_tests.topics import a_topic_table
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


def run_alone(
    instance: DagsterInstance, location: Location, name: str, table: str = "log.events"
) -> ExecuteInProcessResult:
    """Runs one check of a whole table, as the button of the UI does."""
    return materialize(
        [*assets_of(location), *build_table_checks(location)],
        selection=AssetSelection.checks(AssetCheckKey(table_key(table), name)),
        resources=build_platform(),
        instance=instance,
        raise_on_error=False,
    )


def said(result: ExecuteInProcessResult) -> dict[tuple[str, str], AssetCheckEvaluation]:
    """Returns the outcomes of a run's checks, by table and name."""
    return {(table_of(item.asset_key), item.check_name): item for item in result.get_asset_check_evaluations()}


def events(result: SensorResult) -> dict[tuple[str, str], AssetCheckEvaluation]:
    """Returns the outcomes reported by a tick, by table and name."""
    found = [event for event in result.asset_events if isinstance(event, AssetCheckEvaluation)]
    return {(table_of(item.asset_key), item.check_name): item for item in found}


CHECKS = sum(
    not check.of_topics for stage in (Stage.LIVE, Stage.MERGED, Stage.CATALOG) for check in kinds_of(stage).values()
)
"""The number of checks of a table that reads objects and is neither a join table nor an Iceberg table."""


def said_by(result: SensorResult) -> str:
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def test_every_table_has_its_checks(tmp_path_factory: pytest.TempPathFactory) -> None:
    location = a_location(tmp_path_factory.mktemp("files"), a_table())
    keys = [key for step in build_table_checks(location) for key in step.check_keys]
    assert {key.asset_key for key in keys} == {table_key("log.events")}
    assert {key.name for key in keys} == {*OTHERS, "rows_balance", HEALTHY}
    (planned,) = [spec for asset in assets_of(location) for spec in asset.check_specs]
    assert planned.key == AssetCheckKey(asset_key("log.events", "live"), "rows_balance")
    assert planned.blocking
    (live,) = [asset for asset in assets_of(location) if planned.key in asset.check_keys]
    assert planned.partitions_def == live.partitions_def is not None


def test_a_table_that_reads_a_topic_has_checks_of_its_offsets_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    location = a_location(tmp_path_factory.mktemp("files"), a_table(), a_topic_table("log.messages"))
    keys = {(table_of(key.asset_key), key.name) for step in build_table_checks(location) for key in step.check_keys}
    more = {check for table, check in keys if table == "log.messages"} - {
        check for table, check in keys if table == "log.events"
    }
    assert more == {"offsets_contiguous", "topics_read", "lag", "offsets_skipped"}


def planned(instance: DagsterInstance, result: ExecuteInProcessResult) -> list[str]:
    """Returns the planned events of a run: parts of tables, and names of checks."""
    events = [entry.dagster_event for entry in instance.all_logs(result.run_id) if entry.dagster_event]
    assets = [event.asset_key for event in events if event.event_type_value == "ASSET_MATERIALIZATION_PLANNED"]
    checks = [event.asset_check_planned_data for event in events if event.event_type_value == CHECK_PLANNED]
    return sorted([*(part_of(key) for key in assets if key), *(item.check_name for item in checks)])


CHECK_PLANNED = "ASSET_CHECK_EVALUATION_PLANNED"
MOST = 5
"""Planned events of a table and run."""


def test_a_run_plans_at_most_five_events_for_a_table(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(iceberg="true"))
    everything = planned(instance, run(instance, location, ["live", "merged", "catalog", "iceberg"]))
    assert everything == ["catalog", "iceberg", "live", "merged", "rows_balance"]
    assert len(everything) == MOST
    assert planned(instance, run(instance, location, ["live"])) == ["live", "rows_balance"]
    assert planned(instance, run(instance, location, ["catalog"])) == ["catalog"]
    assert planned(instance, run(instance, location, ["live"], by_sensor=True)) == ["live"]


@pytest.mark.parametrize(
    ("text_of", "most"),
    [
        (a_table(iceberg="true"), 5),
        (a_topic_table("log.messages") + "iceberg: true\n", 5),
        (a_join_table(), 3),
    ],
)
def test_all_assets_of_a_table_with_their_checks_are_five_at_most(tmp_path: Path, text_of: str, most: int) -> None:
    location = a_location(tmp_path, text_of)
    (table, *_) = sorted(location.names())
    assets = [key for asset in assets_of(location) for key in asset.keys]
    checks = [key.asset_key for asset in assets_of(location) for key in asset.check_keys]
    assert [table_of(key) for key in (*assets, *checks)].count(table) == most <= MOST


def test_a_day_made_by_hand_is_checked_all_the_way(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    result = run(instance, location, ["live", "merged", "catalog"])
    assert result.success
    ((name, balance),) = said(result).items()
    assert name == ("log.events", "rows_balance")
    assert (balance.passed, balance.partition, balance.blocking) == (True, TODAY, True)
    assert balance.description == "3 lines in = 3 rows out + 0 quarantined, for each of 1 object"
    assert balance.metadata["rows out"].value == 3
    assert last(instance, "catalog_agrees") is None, "what passes needs no event"
    alone = said(run_alone(instance, location, "catalog_agrees"))["log.events", "catalog_agrees"]
    assert alone.description == "1 published day of the last 14 is in the catalog as recorded"


def test_the_balance_of_a_day_is_that_of_its_objects(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    settled.drop(some_rows(2, NOW - timedelta(days=1)))
    run(instance, location, ["live"])
    lose_a_row(settled, "000002.gz")
    with settled.context.database.begin() as connection:
        connection.execute(text("UPDATE prism_staging_objects SET finish_time = finish_time - interval '2 days'"))
    today, yesterday = (run(instance, location, ["live"], day=day) for day in (TODAY, YESTERDAY))
    assert (today.success, yesterday.success) == (True, False)
    for result, day, passed in ((today, TODAY, True), (yesterday, YESTERDAY, False)):
        (balance,) = said(result).values()
        assert (balance.partition, balance.passed) == (day, passed)


def lose_a_row(world: World, name: str) -> None:
    """Lets PostgreSQL count one row less in the small objects of a staging object."""
    with world.context.database.begin() as connection:
        connection.execute(
            text(
                "UPDATE prism_small_objects SET row_count = row_count - 1 FROM prism_staging_objects o "
                "WHERE o.prism_staging_object_id = prism_small_objects.prism_staging_object_id "
                f"AND o.object_key LIKE '%/{name}'"
            )
        )


def last(instance: DagsterInstance, check: str, table: str = "log.events") -> bool | None:
    """Returns whether a check of a whole table passed in Dagster's last result."""
    found = last_outcomes(instance, [(table, check)])
    return found[0].passed if found else None


def test_a_sensors_run_tells_what_fails_and_no_more(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.idle"))
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"], tables=["log.events", "log.idle"])
    settled.drop(some_rows(3, NOW))
    settled.discover(datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M"))
    assert said(run(instance, location, ["live"], tables=["log.events", "log.idle"], by_sensor=True)) == {}
    settled.drop(["no row"])
    settled.discover(datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M"))
    result = run(instance, location, ["live"], tables=["log.events", "log.idle"], by_sensor=True)
    assert said(result) == {}
    assert last(instance, "quarantine_rate") is False
    assert last(instance, "quarantine_rate", "log.idle") is None


def test_a_run_reports_a_check_when_it_begins_to_fail_and_when_it_passes_again(
    settled: World, instance: DagsterInstance
) -> None:
    strict = a_location(settled.root, a_table())
    settled.drop([*some_rows(3, NOW), "no row"])
    for _ in range(2):
        run(instance, strict, ["live"])
    loose = a_location(settled.root, a_table() + "checks: {quarantine_rate: 0.5}\n")
    run(instance, loose, ["live"])
    key = AssetCheckKey(table_key("log.events"), "quarantine_rate")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    assert [record.evaluation.passed for record in records if record.evaluation] == [True, False]
    assert {record.run_id for record in records} == {""}, "without a run"


def test_rows_out_of_balance_keep_the_run_from_the_catalog(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.good"))
    settled.drop(some_rows(3, NOW))
    settled.drop(some_rows(3, NOW), stream="good")
    assert run(instance, location, ["live"], tables=["log.events", "log.good"]).success
    with settled.context.database.begin() as connection:
        connection.execute(
            text(
                "UPDATE prism_small_objects SET row_count = 4 FROM prism_staging_objects o "
                "WHERE o.prism_staging_object_id = prism_small_objects.prism_staging_object_id "
                "AND o.object_key LIKE 'events/%'"
            )
        )
    result = run(instance, location, ["live", "catalog"], tables=["log.events", "log.good"])
    assert not result.success
    found = said(result)
    assert {table: found[table, "rows_balance"].passed for table in ("log.events", "log.good")} == {
        "log.events": False,
        "log.good": True,
    }
    assert (last(instance, "rows_balance"), last(instance, "rows_balance", "log.good")) == (False, None)
    failure = result.failure_data_for_node("live_utc")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert "3 rows out of which 4 are in small objects" in str(failure.user_failure_data.description)
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    assert stored.tags[FAILED_TABLES_TAG] == "log.events"
    assert {event.asset_key for event in result.get_asset_materialization_events()} == {asset_key("log.good", "live")}


def test_a_check_runs_alone_without_a_day(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.other"))
    settled.drop([*some_rows(3, NOW), "no row"])
    run(instance, location, ["live"], tables=["log.events", "log.other"])
    result = run_alone(instance, location, "quarantine_rate")
    assert result.success
    assert list(said(result)) == [("log.events", "quarantine_rate")]
    found = said(result)["log.events", "quarantine_rate"]
    assert not found.passed
    assert found.severity is AssetCheckSeverity.WARN
    assert "1 of 4 lines of the last day are quarantined (25.00%), above the limit of 1.00%: 1 " in str(
        found.description
    )
    assert not [event for event in result.all_events if event.is_step_materialization]


def test_limits_come_from_the_table_file(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table() + "checks: {quarantine_rate: 0.5}\n")
    settled.drop([*some_rows(3, NOW), "no row"])
    assert said(run_alone(instance, location, "quarantine_rate"))["log.events", "quarantine_rate"].passed


def test_all_checks_are_run_by_themselves_and_told_once(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.tokyo", timezone="Asia/Tokyo"))
    run(instance, location, ["live"])
    first = tick(instance, location, "table_checks")
    assert len(events(first)) == 2 * CHECKS
    both = 2 * CHECKS
    assert said_by(first) == (
        f"{both} checks of 2 tables were run, 0 of them fail; {both} reported, 0 left for the next tick"
    )
    second = tick(instance, location, "table_checks", first.cursor)
    assert events(second) == {}
    settled.drop([*some_rows(3, NOW), "no row"])
    run(instance, location, ["live"])
    third = tick(instance, location, "table_checks", second.cursor)
    assert list(events(third)) == [("log.events", "quarantine_rate")]
    assert not events(third)["log.events", "quarantine_rate"].passed
    with settled.context.database.begin() as connection:
        connection.execute(text("UPDATE prism_staging_objects SET finish_time = finish_time - interval '2 days'"))
    fourth = tick(instance, location, "table_checks", third.cursor)
    assert [(key, item.passed) for key, item in events(fourth).items()] == [(("log.events", "quarantine_rate"), True)]
    for event in fourth.asset_events:
        instance.report_runless_asset_event(event)
    assert events(tick(instance, location, "table_checks", fourth.cursor)) == {}


def test_a_failure_that_a_run_reported_ends_without_another_run(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensor asks Dagster for the last results of a few checks at each tick, in turn."""
    location = a_location(settled.root, a_table())
    run(instance, location, ["live"])
    cursor = tick(instance, location, "table_checks").cursor
    settled.drop([*some_rows(3, NOW), "no row"])
    run(instance, location, ["live"])
    assert last(instance, "quarantine_rate") is False
    with settled.context.database.begin() as connection:
        connection.execute(text("UPDATE prism_staging_objects SET finish_time = finish_time - interval '2 days'"))
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._RESULTS", 5)
    told: list[tuple[str, str]] = []
    for _ in range(-(-CHECKS // 5)):
        result = tick(instance, location, "table_checks", cursor)
        told += [name for name, item in events(result).items() if item.passed]
        cursor = result.cursor
    assert set(told) == {("log.events", "quarantine_rate")}


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks in one tick, however slow the machine is."""
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._ENOUGH_SECONDS", 3_600.0)


def test_checks_that_take_long_take_turns(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._ENOUGH_SECONDS", 0.0)
    location = a_location(settled.root, a_table())
    told: list[str] = []
    cursor = None
    for _ in range(CHECKS):
        result = tick(instance, location, "table_checks", cursor)
        assert "1 check of 1 table was run" in said_by(result)
        told += [check for _, check in events(result)]
        cursor = result.cursor
    assert len(told) == len(set(told)) == CHECKS


def test_what_a_tick_finds_is_kept_by_dagster_without_a_run(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop([*some_rows(3, NOW), "no row"])
    run(instance, location, ["live"])
    for event in tick(instance, location, "table_checks").asset_events:
        instance.report_runless_asset_event(event)
    key = AssetCheckKey(table_key("log.events"), "quarantine_rate")
    (record, *_) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.evaluation is not None
    assert (record.evaluation.passed, record.evaluation.severity) == (False, AssetCheckSeverity.WARN)
    assert record.evaluation.metadata["share"].value == 0.25


def test_many_tables_are_told_over_several_ticks(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._REPORTS", 8)
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._CATALOG_TABLES", 1)
    location = a_location(settled.root, a_table("log.a"), a_table("log.b"))
    told: list[tuple[str, str]] = []
    cursor = None
    for _ in range(-(-2 * CHECKS // 8)):
        result = tick(instance, location, "table_checks", cursor)
        told += events(result)
        cursor = result.cursor
    assert len(told) == len(set(told)) == 2 * CHECKS


def test_a_check_that_still_fails_is_not_told_at_every_tick(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop([*some_rows(3, NOW), "no row"])
    run(instance, location, ["live"])
    first = tick(instance, location, "table_checks")
    assert not events(first)["log.events", "quarantine_rate"].passed
    second = tick(instance, location, "table_checks", first.cursor)
    assert events(second) == {}
    assert said_by(second) == (
        f"{CHECKS} checks of 1 table were run, 1 of them fail; 0 reported, 0 left for the next tick"
    )


def published(world: World, instance: DagsterInstance, *names: str) -> Location:
    """Tables with a published day each, so that their catalog is asked."""
    location = a_location(world.root, *map(a_table, names))
    for name in names:
        world.drop(some_rows(3, NOW), stream=name.partition(".")[2])
    run(instance, location, ["live", "catalog"], tables=names)
    return location


def test_a_catalog_that_does_not_answer_keeps_no_other_check_from_being_told(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._CATALOG_GROUP", 1)
    location = published(settled, instance, "log.a", "log.b")
    with monkeypatch.context() as patch:
        patch.setenv("PRISM_GLUE_ENDPOINT", "http://127.0.0.1:1")
        first = tick(instance, location, "table_checks")
    answered = 2 * (CHECKS - 1)
    assert len(events(first)) == answered
    assert said_by(first).startswith(f"{answered} checks of 2 tables were run, 0 of them fail; {answered} reported, ")
    assert "; the catalog was not asked for all tables of this turn: " in said_by(first)
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._CATALOG_TABLES", 1)
    assert list(events(tick(instance, location, "table_checks", first.cursor))) == [("log.b", "catalog_agrees")]


@pytest.fixture
def refusing(settled: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Glue that refuses every call about table `b`, and serves all others."""
    real = str(settled.settings.glue_endpoint)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = 400, b'{"__type": "AccessDeniedException", "Message": "no"}'
            if json.loads(body).get("TableName") != "b":
                sent = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                with urllib.request.urlopen(urllib.request.Request(real, body, sent)) as found:
                    status, answer = found.status, found.read()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("PRISM_GLUE_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_table_that_the_catalog_refuses_keeps_no_other_from_being_asked_for(
    settled: World, instance: DagsterInstance, request: pytest.FixtureRequest
) -> None:
    location = published(settled, instance, "log.a", "log.b", "log.c")
    request.getfixturevalue("refusing")
    first = tick(instance, location, "table_checks")
    found = [table for table, check in events(first) if check == "catalog_agrees"]
    assert sorted(found) == ["log.a", "log.c"]
    assert len(events(first)) == 3 * CHECKS - 1
    assert "; the catalog was not asked for log.b: " in said_by(first)


def test_what_there_was_no_time_for_comes_first_at_the_next_tick(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    run(instance, location, ["live"])
    with monkeypatch.context() as patch:
        patch.setattr("prism_assets.defs.sensors.requests.BUDGET_SECONDS", 4.0)
        with settled.context.database.begin() as connection:
            connection.execute(text("LOCK TABLE prism_quarantine IN ACCESS EXCLUSIVE MODE"))
            cut = tick(instance, location, "table_checks", Reported(first="unmerged_age").write())
    assert {check for _, check in events(cut)} == {
        "unmerged_age",
        "closing_blocked",
        "catalog_agrees",
        "erasures_proved",
    }
    assert "; the time was over, the next tick goes on; rows_balance was not run: PostgreSQL at " in said_by(cut)
    assert Reported.read(cut.cursor).first == "rows_balance"
    rest = tick(instance, location, "table_checks", cut.cursor)
    assert {check for _, check in events(rest)} == {
        "rows_balance",
        "divided_lines",
        "unread_objects",
        "silent_streams",
        "undefined_fields",
        "quarantine_rate",
        "value_lengths",
        "object_sizes",
    }


OTHERS = {
    "divided_lines",
    "unread_objects",
    "silent_streams",
    "undefined_fields",
    "quarantine_rate",
    "object_sizes",
    "unmerged_age",
    "closing_blocked",
    "catalog_agrees",
    "erasures_proved",
    "value_lengths",
}
"""The checks of a table besides the balance of its rows."""


def test_a_check_that_takes_all_the_time_there_is_does_not_keep_the_others_waiting(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    run(instance, location, ["live"])
    monkeypatch.setattr("prism_assets.defs.sensors.requests.BUDGET_SECONDS", 1.0)
    with settled.context.database.begin() as connection:
        connection.execute(text("LOCK TABLE prism_quarantine IN ACCESS EXCLUSIVE MODE"))
        cut = tick(instance, location, "table_checks", Reported(first="rows_balance").write())
        assert events(cut) == {}
        assert Reported.read(cut.cursor).first == list(kinds_of(Stage.LIVE))[1], "the one after it"
        told: set[str] = set()
        cursor = cut.cursor
        for _ in range(20):  # one is enough, but on a busy machine
            rest = tick(instance, location, "table_checks", cursor)
            told |= {check for _, check in events(rest)}
            cursor = rest.cursor
            if told >= OTHERS:
                break
    assert told == OTHERS


def test_a_catalog_that_lost_a_table_is_told_apart_from_postgresql(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    settled.reader()._glue.delete_table(DatabaseName=f"{settled.settings.glue_database_prefix}log", Name="events")
    found = said(run_alone(instance, location, "catalog_agrees"))["log.events", "catalog_agrees"]
    assert (found.passed, found.severity) == (False, AssetCheckSeverity.ERROR)
    assert f"for 1 of 1 day: {TODAY} is missing" in str(found.description)
    assert "`prism catalog --republish --table log.events` mends it" in str(found.description)


def test_hours_of_silence_are_counted_by_the_policy_of_the_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    text_of = a_table() + "freshness: {warn: 30m, fail: 2h}\n"
    location = a_location(tmp_path_factory.mktemp("files"), text_of, a_table("log.other"))
    policies = {
        spec.key.to_user_string(): spec.freshness_policy for asset in assets_of(location) for spec in asset.specs
    }
    policy = policies.pop("prism/log/events_live")
    assert isinstance(policy, TimeWindowFreshnessPolicy)
    assert policy.warn_window is not None
    assert (policy.warn_window.to_timedelta(), policy.fail_window.to_timedelta()) == (
        timedelta(minutes=30),
        timedelta(hours=2),
    )
    assert set(policies.values()) == {None}
