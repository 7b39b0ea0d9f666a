"""Table files in Dagster: the files put in force, those left out, and the reports."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dagster import DagsterInstance
from sqlalchemy import text

from prism_assets.defs.keys import asset_key
from prism_assets.defs.location import Location
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.stages.apply.files import parse_table_files
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import FIRST_DAY, a_folder, a_location
from prism_assets_tests.defs.test_problems import told
from prism_assets_tests.defs.test_runs import NOW, made, run
from prism_assets_tests.defs.test_sensors import asked, said, tick
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


def loaded(root: Path, *table_files: str) -> Location:
    """Returns the content a code location loads from possibly wrong files."""
    folder = a_folder(root, *table_files)
    tables, problems = parse_table_files(folder)
    return Location(folder, FIRST_DAY, 10, tuple(tables), problems=tuple(problems))


def versions(world: World) -> dict[str, int]:
    return {str(table.name): table.version for table in world.context.choose_tables(None)}


def test_a_wrong_file_is_told_in_every_tick_and_the_other_tables_go_on(
    settled: World, instance: DagsterInstance
) -> None:
    location = loaded(settled.root, a_table(), a_table("log.bad").replace("type: bigint", "type: bigent"))
    for _ in range(2):
        reason = said(tick(instance, location, "new_objects"))
        assert reason.startswith("0 new of 0 objects")
        assert "; a table file is not applied: " in reason
        assert reason.endswith(
            "001.yaml:10: columns[1].type: bigent is not a column type" + reason.rpartition("type")[2]
        )
    settled.drop(some_rows(1, NOW))
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.events", "live")]


def test_of_two_files_that_contradict_each_other_the_older_one_stays(tmp_path: Path) -> None:
    location = loaded(tmp_path, a_table("log.new").replace("/new/", "/events/new/"), a_table())
    new, old = location.folder / "000.yaml", location.folder / "001.yaml"
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert [str(table.name) for table in parse_table_files(location.folder)[0]] == ["log.events"]
    os.utime(new, (900_000_000, 900_000_000))
    found, problems = parse_table_files(location.folder)
    assert [str(table.name) for table in found] == ["log.new"]
    said = f"{old}:6: streams[0].url: s3://staging/events/ of log.events overlaps s3://staging/events/new/ of log.new"
    assert problems == [f"{said} ({new}); give the prefix to one of them, or the same url to both, with a `route` each"]


def test_what_a_later_process_applied_is_not_undone_by_one_that_has_loaded_older_files(
    settled: World, instance: DagsterInstance
) -> None:
    older = a_location(settled.root, a_table())
    tick(instance, older, "new_objects")
    newer = a_location(settled.root, a_table(merge="{interval: 77}"))
    run(instance, newer, ["live"])
    before = versions(settled)
    for location in (older, newer, older):
        tick(instance, location, "new_objects")
    assert versions(settled) == before
    assert settled.context.choose_tables(None)[0].merge.interval == 77


def test_a_change_that_is_refused_keeps_no_other_table_from_its_own(settled: World, instance: DagsterInstance) -> None:
    run(instance, a_location(settled.root, a_table(), a_table("log.other")), ["live"])
    before = versions(settled)
    dropped = a_table().replace("  - {name: id, type: bigint}\n", "")
    assert dropped != a_table()
    location = loaded(settled.root, dropped, a_table("log.other", merge="{interval: 77}"))
    reason = said(tick(instance, location, "merges_due"))
    assert "; a table file is not applied: " in reason
    assert "its file has no column id: put it back" in reason
    assert versions(settled) == {**before, "log.other": before["log.other"] + 1}


def test_a_run_by_hand_does_the_other_tables_where_the_file_of_one_is_refused(
    settled: World, instance: DagsterInstance
) -> None:
    run(instance, a_location(settled.root, a_table()), ["live"])
    taken = a_table("log.taken").replace("staging/taken/", "staging/events/2026/")
    folder = a_folder(settled.root, a_table(), taken)
    files = [parse_table_file((folder / name).read_text(), name) for name in ("000.yaml", "001.yaml")]
    location = Location(folder, FIRST_DAY, 10, tuple(files))
    result = run(instance, location, ["live"], tables=["log.events", "log.taken"])
    assert not result.success
    assert [name for name, _, _ in made(result)] == ["log/events_live"]
    assert "log.taken: the table is not there: its file is not applied" in told(result, "live_utc")


def test_table_files_come_into_force_within_the_time_of_a_tick(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    tick(instance, location, "new_objects")
    later = a_location(settled.root, a_table(), a_table("log.other"))
    monkeypatch.setattr("prism_assets.defs.sensors.requests.BUDGET_SECONDS", 1.0)
    begun = time.monotonic()
    with settled.context.database.begin() as connection, ThreadPoolExecutor(1) as thread:
        connection.execute(text("LOCK TABLE prism_tables IN SHARE MODE"))
        reason = said(thread.submit(tick, instance, later, "new_objects").result())
    assert reason.startswith("the 1 s of a tick were over: ")
    assert time.monotonic() - begun < 10
