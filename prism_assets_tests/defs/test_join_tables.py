"""Join tables in Dagster: their assets, requests of folds, and the events of a run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from dagster import AssetSpec, DagsterInstance, DagsterInvalidConfigError

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.checks.runless import last_outcomes
from prism_assets.defs.keys import asset_key, table_key
from prism_assets.defs.sensors.build import build_sensors
from prism_assets.stages.checks.joins import CHANGES_BALANCE, JOIN_RATE
from prism_assets.stages.findings.records import RECORDS_WAIT
from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_checks import run_alone
from prism_assets_tests.defs.test_checks import said as checked
from prism_assets_tests.defs.test_runs import NOW, TODAY, YESTERDAY, description_of, made, run
from prism_assets_tests.defs.test_sensors import asked, said, tick
from prism_assets_tests.requests import Requests, a_join_table, back, front
from prism_assets_tests.world import World

# Dagster calls code deprecated by itself for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

LOG, RECORDS = "log.request_changes", "log.request"
CHANGES = [("front", front("a", NOW, "home")), ("back", back("b", NOW - timedelta(minutes=90), 1, 200))]


def arrive(world: World) -> None:
    for stream, line in CHANGES:
        world.drop([line], stream=stream)


def test_records_hang_on_their_log_and_are_published(tmp_path_factory: pytest.TempPathFactory) -> None:
    location = a_location(tmp_path_factory.mktemp("files"), a_join_table())
    found = build_assets(location)
    specs = {
        spec.key: {dep.asset_key for dep in spec.deps}
        for asset in found
        for spec in ([asset] if isinstance(asset, AssetSpec) else asset.specs)
    }
    assert specs == {
        asset_key(LOG, "staging"): set(),
        asset_key(LOG, "live"): {asset_key(LOG, "staging")},
        asset_key(LOG, "merged"): {asset_key(LOG, "live")},
        asset_key(LOG, "catalog"): {asset_key(LOG, "live"), asset_key(LOG, "merged")},
        asset_key(RECORDS, "records"): {asset_key(LOG, "live")},
        asset_key(RECORDS, "catalog"): {asset_key(RECORDS, "records")},
        table_key(LOG): {asset_key(LOG, "catalog")},
        table_key(RECORDS): {asset_key(RECORDS, "catalog")},
    }


def test_no_sensor_looks_for_folds_where_there_is_no_join_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = a_location(tmp_path_factory.mktemp("plain"), a_table())
    joined = a_location(tmp_path_factory.mktemp("joined"), a_join_table())
    assert "folds_due" not in {sensor.name for sensor in build_sensors(plain)}
    assert "folds_due" in {sensor.name for sensor in build_sensors(joined)}


def test_changes_become_records_that_readers_see(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_join_table(lateness="48h", more="iceberg: true\n"))
    arrive(settled)
    run(instance, location, ["live", "catalog"], tables=[LOG])
    assert asked(tick(instance, location, "folds_due")) == [asset_key(RECORDS, "records")]
    found = made(run(instance, location, ["records"], tables=[RECORDS], by_sensor=True))
    assert [(name, day) for name, day, _ in found] == [
        ("log/request_records", YESTERDAY),
        ("log/request_records", TODAY),
    ]
    facts = found[0][2].metadata
    assert (facts["changes in"].value, facts["rows written"].value, facts["days changed"].value) == (2, 2, 2)
    assert facts["dagster/partition_row_count"].value == 1
    assert (facts["records changed"].value, facts["rows written per record changed"].value) == (2, 1.0)
    assert not [name for name in facts if name.startswith("join delay")], "no record has both groups"
    assert said(tick(instance, location, "folds_due")) == "0 of 1 join table is due"
    run(instance, location, ["catalog"], tables=[RECORDS], by_sensor=True)
    requests = Requests(settled)
    assert requests.seen() == requests.wanted()
    assert [row[0] for row in requests.seen()] == ["a", "b"]
    assert asset_key(RECORDS, "iceberg") in asked(tick(instance, location, "iceberg_work"))
    found = made(run(instance, location, ["iceberg"], tables=[RECORDS], by_sensor=True))
    assert {day: facts.metadata["rows in"].value for _, day, facts in found} == {YESTERDAY: 1, TODAY: 1}
    assert requests.seen_in_iceberg() == requests.wanted()


def test_a_fold_by_hand_tells_how_far_parts_lie_apart_and_whether_changes_balance(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_join_table(lateness="48h"))
    changes = [("front", front("a", NOW, "home")), ("back", back("a", NOW + timedelta(seconds=3), 1, 200))]
    for stream, line in changes:
        settled.drop([line], stream=stream)
    run(instance, location, ["live"], tables=[LOG])
    result = run(instance, location, ["records"], tables=[RECORDS])
    ((_, _, event),) = [item for item in made(result) if item[1] == TODAY]
    assert event.metadata["join delay p50: at most seconds"].value == 5
    assert event.metadata["join delay p99: at most seconds"].value == 5
    ((name, balance),) = checked(result).items()
    assert (name, balance.passed) == ((RECORDS, CHANGES_BALANCE), True)
    assert balance.description == "2 changes taken = 2 folded + 0 that wait, and the log agrees for 1 day"
    alone = checked(run_alone(instance, location, JOIN_RATE, RECORDS))
    assert [key for key, item in alone.items() if item.passed] == [(RECORDS, JOIN_RATE)]


def test_a_fold_without_an_object_that_is_gone_fails_a_check_and_no_run(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_join_table(lateness="48h"))
    settled.drop([front("a", NOW, "home")], stream="front")
    run(instance, location, ["live"], tables=[LOG])
    lake = settled.root / "buckets" / "lake"
    (lost,) = [path for path in lake.rglob("*.parquet") if "request_changes" in str(path)]
    lost.unlink()
    settled.drop([front("b", NOW, "home")], stream="front")
    settled.stream(NOW.isoformat())
    result = run(instance, location, ["records"], tables=[RECORDS], by_sensor=True)
    assert result.success
    assert [day for _, day, _ in made(result)] == [TODAY]
    assert checked(result) == {}
    (waits,) = last_outcomes(instance, [(RECORDS, RECORDS_WAIT)])
    assert not waits.passed
    assert "1 object of changes cannot be read and is set aside" in waits.sentence


def test_settled_records_of_a_day_that_is_over_are_merged_behind_a_fold(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_join_table(lateness="1s", window="1s"))
    first = NOW - timedelta(days=2)
    for number in range(8):
        settled.drop([front(f"r{number}", first + timedelta(minutes=20 * number), "home")], stream="front")
    settled.apply(now=first.isoformat())
    settled.stream((first - timedelta(minutes=1)).isoformat())
    Requests(settled).fold(NOW.isoformat())
    settled.discover(NOW.isoformat())
    Requests(settled).fold(NOW.isoformat())
    assert asked(tick(instance, location, "folds_due")) == [asset_key(RECORDS, "records")]
    result = run(instance, location, ["records"], tables=[RECORDS], by_sensor=True)
    (told,) = [event.metadata for _, _, event in made(result) if "settled objects in" in event.metadata]
    assert (told["settled objects in"].value, told["settled objects out"].value) == (8, 1)
    assert said(tick(instance, location, "folds_due")) == "0 of 1 join table is due"


def test_a_run_configured_to_rebuild_makes_lost_records_again(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_join_table(lateness="48h"))
    arrive(settled)
    run(instance, location, ["live"], tables=[LOG])
    run(instance, location, ["records"], tables=[RECORDS])
    (lost, *_) = sorted(path for path in settled.root.rglob("*.parquet") if "/records/" in str(path))
    lost.unlink()
    result = run(instance, location, ["records"], tables=[RECORDS], rebuild="all")
    assert result.success
    facts = {day: item.metadata for _, day, item in made(result)}
    assert facts[TODAY]["days rewritten"].value == [YESTERDAY]
    assert facts[YESTERDAY]["rows rewritten"].value == 1
    refused = run(instance, location, ["live"], tables=[LOG], rebuild="all")
    assert "no rebuild makes other changes" in description_of(refused)
    with pytest.raises(DagsterInvalidConfigError, match="rebuild"):
        run(instance, location, ["records"], tables=[RECORDS], rebuild="without_missing")
