"""The definitions: the list of assets. Loading has no effect on anything."""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import re
import runpy
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetSpec, Definitions
from dagster._core.errors import DagsterUserCodeProcessError

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.keys import asset_key, part_of, table_of
from prism_assets.defs.location import Location, load_location
from prism_assets.defs.resources import build_platform
from prism_assets.defs.sensors.build import build_sensors
from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.tables import a_folder, a_location

PROJECT = Path(__file__).resolve().parents[2]
DEFINITIONS = PROJECT / "prism_assets" / "definitions.py"


def specs_of(root: Path, *table_files: str) -> dict[str, AssetSpec]:
    definitions = Definitions(assets=build_assets(a_location(root, *table_files)), resources=build_platform())
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def load_in_a_process(tmp_path: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRISM_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(PROJECT), "PRISM_HOME": str(tmp_path / "none"), **environment},
        capture_output=True,
        text=True,
    )


def test_a_table_is_one_group_with_four_assets_and_one_of_the_whole(tmp_path: Path) -> None:
    specs = specs_of(tmp_path, a_table("web.clicks"))
    parts = [f"prism/web/clicks_{part}" for part in ("catalog", "live", "merged", "staging")]
    assert sorted(specs) == ["prism/web.clicks", *parts]
    assert {spec.group_name for spec in specs.values()} == {"web_clicks"}
    assert {tuple(spec.owners) for spec in specs.values()} == {("team:test",)}


def test_tables_whose_names_differ_have_groups_that_differ(tmp_path: Path) -> None:
    specs = specs_of(tmp_path, a_table("a_b.c"), a_table("a.b_c"), a_table("a.b__c"))
    groups = {table_of(spec.key): spec.group_name for spec in specs.values()}
    assert groups == {"a.b_c": "a_b_c", "a.b__c": "a_b__c", "a_b.c": "a_b___c"}
    assert len({(table_of(spec.key), spec.group_name) for spec in specs.values()}) == 3


def test_lineage_runs_from_staging_to_catalog(tmp_path: Path) -> None:
    specs = specs_of(tmp_path, a_table())
    upstream = {part_of(spec.key): sorted(part_of(dep.asset_key) for dep in spec.deps) for spec in specs.values()}
    assert upstream == {
        "staging": [], "live": ["staging"], "merged": ["live"], "catalog": ["live", "merged"], "table": ["catalog"],
    }  # fmt: skip


def test_names_of_tables_never_give_two_assets_one_key(tmp_path: Path) -> None:
    specs = specs_of(tmp_path, a_table("log.events"), a_table("log.events_live"))
    assert len(specs) == 10
    assert {table_of(spec.key) for spec in specs.values()} == {"log.events", "log.events_live"}


def test_a_table_that_is_published_as_iceberg_is_one_asset_more(tmp_path: Path) -> None:
    specs = specs_of(tmp_path, a_table(iceberg="true"), a_table("log.other"))
    (iceberg,) = [spec for key, spec in specs.items() if key.endswith("_iceberg")]
    assert iceberg.key == asset_key("log.events", "iceberg")
    assert sorted(part_of(dep.asset_key) for dep in iceberg.deps) == ["live", "merged"]
    assert len(specs) == 11


def test_tables_of_one_zone_share_a_step_and_its_days_end_with_today(tmp_path: Path) -> None:
    location = a_location(tmp_path, a_table("a.one"), a_table("a.two"), a_table("a.tokyo", timezone="Asia/Tokyo"))
    steps = [step for step in build_assets(location) if not isinstance(step, AssetSpec)]
    by_name = {step.node_def.name: step for step in steps}
    assert sorted(by_name) == [
        "catalog_asia_tokyo", "catalog_utc", "live_asia_tokyo", "live_utc", "merged_asia_tokyo", "merged_utc",
    ]  # fmt: skip
    assert by_name["live_utc"].keys == {asset_key(f"a.{name}", "live") for name in ("one", "two")}
    days = by_name["live_utc"].partitions_def
    assert days is not None
    assert days.get_last_partition_key() == location.tables[0].today(datetime.now(timezone.utc)).isoformat()


def test_columns_are_shown_with_the_types_readers_see(tmp_path: Path) -> None:
    spec = specs_of(tmp_path, a_table(columns=["{name: score, type: double}"]))["prism/log/events_live"]
    columns = spec.metadata["dagster/column_schema"].columns
    assert [(column.name, column.type) for column in columns] == [
        ("time", "timestamp"), ("id", "bigint"), ("score", "double"),
    ]  # fmt: skip


def test_columns_are_shown_with_what_the_table_file_says_of_them(tmp_path: Path) -> None:
    columns = ["{name: score, type: double, description: points of a game}", "{name: n, type: bigint, source: count}"]
    described = ["{name: seconds, type: double, source: s, description: since the start}"]
    spec = specs_of(tmp_path, a_table(columns=[*columns, *described]))["prism/log/events_catalog"]
    told = {column.name: column.description for column in spec.metadata["dagster/column_schema"].columns}
    assert (told["score"], told["n"]) == ("points of a game", "from count")
    assert told["seconds"] == "since the start; from s"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A process that loads the definitions of twenty tables without any setting, and watches the interpreter."""
    root = tmp_path_factory.mktemp("loaded")
    a_folder(root, a_table("log.iced", iceberg="true"), *(a_table(f"log.t{number}") for number in range(19)))
    done = load_in_a_process(root, _WATCHED)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


_WATCHED = """
import collections, json, sys
seen, files = collections.Counter(), collections.Counter()
def note(event, arguments):
    seen[event] += 1
    if event == "open" and str(arguments[0]).endswith(".yaml"):
        files[arguments[0]] += 1
sys.addaudithook(note)
import dagster_aws.s3, dagster_pyspark, pyspark
from pyspark.sql import SparkSession
connected = seen["socket.connect"]
seen.clear(), files.clear()
from prism_assets.definitions import defs
defs.get_repository_def().load_all_definitions()
outside = ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "os.posix_spawn")
print(json.dumps({
    "assets": len(list(defs.resolve_all_asset_keys())),
    "sensors": sorted(sensor.name for sensor in defs.sensors),
    "outside": [name for name in outside if seen[name]],
    "connected": connected,
    "session": SparkSession._instantiatedSession is not None,
    "files": sorted(files.values()),
    "pyiceberg": "pyiceberg" in sys.modules,
}))
"""


def test_definitions_load_without_any_setting(loaded: dict[str, Any]) -> None:
    assert loaded["assets"] == 20 * 5 + 1
    assert loaded["sensors"] == [
        "catalog_work", "dead_workers", "delayed_data", "iceberg_work", "merges_due", "new_objects", "run_failures",
        "runless_materializations", "table_checks", "table_health",
    ]  # fmt: skip


def test_loading_opens_no_connection_no_process_no_session_and_each_table_file_once(loaded: dict[str, Any]) -> None:
    assert (loaded["outside"], loaded["connected"], loaded["session"]) == ([], 0, False)
    assert loaded["files"] == [1] * 20


def test_the_definitions_of_iceberg_tables_load_without_the_library_that_commits(loaded: dict[str, Any]) -> None:
    assert not loaded["pyiceberg"]


def test_the_work_of_building_grows_with_the_tables_and_no_faster(tmp_path: Path) -> None:
    """Counted in function calls, which are equal on every machine."""

    def calls(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        location = a_location(folder, *(a_table(f"log.t{number:03}") for number in range(count)))
        with cProfile.Profile() as profile:
            definitions = Definitions(
                assets=build_assets(location), sensors=build_sensors(location), resources=build_platform()
            )
            definitions.get_repository_def()
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    calls(2)  # imports at first use
    few, many = calls(10), calls(60)
    print(f"{few} calls for 10 tables, {many} for 60")
    assert many < 6.5 * few


def definitions_of_the_environment() -> Location:
    """Runs definitions.py as a code server does, and returns its location."""
    location = runpy.run_path(str(DEFINITIONS))["_location"]
    assert isinstance(location, Location)
    return location


WRONG = a_table("log.bad").replace("type: bigint", "type: bigent")
SENTENCE = "001.yaml:10: columns[1].type: bigent is not a column type"


def test_a_malformed_table_file_is_left_out_and_told_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PRISM_TABLES_DIR", str(a_folder(tmp_path, a_table(), WRONG)))
    assert definitions_of_the_environment().names() == ("log.events",)
    assert SENTENCE in caplog.text


def test_nothing_is_loaded_with_a_malformed_table_file_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_TABLES_DIR", str(a_folder(tmp_path, a_table(), WRONG)))
    monkeypatch.setenv("PRISM_STRICT_TABLES", "1")
    with pytest.raises(DagsterUserCodeProcessError, match=re.escape(SENTENCE)):
        definitions_of_the_environment()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PRISM_TABLES_DIR", "/nowhere/tables", "/nowhere/tables is not a folder"),
        ("PRISM_FIRST_DAY", "soon", "PRISM_FIRST_DAY: "),
    ],
)
def test_a_wrong_setting_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(DagsterUserCodeProcessError, match=re.escape(sentence)):
        definitions_of_the_environment()


def test_a_folder_that_is_not_here_is_looked_for_next_to_the_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    a_folder(home, a_table("a.found"))
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert load_location().names() == ("a.found",)


def test_a_location_without_tables_has_no_sensors(tmp_path: Path) -> None:
    assert build_sensors(a_location(tmp_path)) == []


def test_three_hundred_tables_make_fifteen_hundred_assets(tmp_path: Path, long: bool) -> None:
    if not long:
        pytest.skip("long: building grows with the tables and no faster")
    a_folder(tmp_path, *(a_table(f"log.t{number:03}") for number in range(300)))
    code = (
        "import time, dagster, dagster_aws.s3, dagster_pyspark, prism_assets.platform, prism_assets.stages.apply.run\n"
        "import prism_assets.defs.assets.build, prism_assets.defs.sensors.build\n"
        "begun = time.monotonic()\n"
        "from prism_assets.definitions import defs\n"
        "built = time.monotonic() - begun\n"
        "keys = len(list(defs.resolve_all_asset_keys()))\n"
        "print(keys, f'built in {built:.2f} s, resolved after {time.monotonic() - begun:.2f} s')"
    )
    done = load_in_a_process(tmp_path, code)
    print(done.stdout)
    assert done.stdout.startswith("1500 built in"), done.stderr
