"""Records of join tables for clients of DuckLake: readable at the commit of their fold, each once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prism_assets.domain.files.keys import RecordKey
from prism_assets.domain.records.folding import RecordPart
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.requests import Requests, a_join_table, some_changes
from prism_assets_tests.world import World

NIGHT = "2026-03-01T23:00"


def seen(lake: LakeOfTest, requests: Requests) -> list[tuple[Any, ...]]:
    """Returns the records seen by a client, in the form of `wanted`."""
    names = ", ".join(column.name for column in requests.table.columns)
    return sorted(lake.query(f"SELECT {names} FROM lake.log.request"), key=str)


def wanted(requests: Requests) -> list[tuple[Any, ...]]:
    """Returns the records made of the changes by the model, with times in the form of sessions."""
    rows = [tuple(str(value) if isinstance(value, datetime) else value for value in row) for row in requests.wanted()]
    return sorted(rows, key=str)


def test_records_are_read_from_the_commit_of_their_fold_on(world: World, lake: LakeOfTest) -> None:
    world.apply(a_join_table(owner=True))
    requests = Requests(world)
    changes = some_changes(5, 90, NIGHT, requests=12, hours=3)
    for start in range(0, len(changes), 30):
        requests.arrive(changes[start : start + 30], NIGHT)
        world.catalog(NIGHT)  # the log, for the model; the records are not published yet
        requests.fold(NIGHT)
        assert seen(lake, requests) == wanted(requests) != []
        assert len(lake.query("SELECT 1 FROM lake.log.request_changes")) == start + 30
    by_day = dict(lake.query("SELECT CAST(dt AS VARCHAR), count(*) FROM lake.log.request GROUP BY 1"))
    assert sum(by_day.values()) == len(requests.wanted())
    assert len(by_day) == 2
    for day, count in by_day.items():
        assert lake.query(f"SELECT count(*) FROM lake.log.request WHERE dt = DATE '{day}'") == [(count,)]
    keys = world.context.lake.keys(requests.table)
    for (path,) in lake.sql("SELECT path FROM prism_lake.ducklake_data_file WHERE path LIKE 'records/%%'"):
        named = keys.parse(keys.root + path)
        assert isinstance(named, RecordKey)
        assert named.part is RecordPart.VISIBLE


def test_settled_records_are_read_once_before_and_after_they_are_merged(world: World, lake: LakeOfTest) -> None:
    world.apply(a_join_table())
    requests = Requests(world)
    requests.arrive(some_changes(5, 60, NIGHT, requests=12, hours=3), NIGHT)
    requests.fold(NIGHT)
    world.discover("2026-03-04T00:00")
    requests.fold("2026-03-04T00:00")
    world.catalog(NIGHT)
    rows, files = seen(lake, requests), _record_files(lake)
    assert rows == wanted(requests) != []
    world.merge("2026-03-04T00:00")
    assert seen(lake, requests) == rows
    assert _record_files(lake) == 2 < files  # one for each day


def _record_files(lake: LakeOfTest) -> int:
    return len(lake.sql("SELECT 1 FROM prism_lake.ducklake_data_file WHERE path LIKE 'records/%%'"))


def test_ids_of_files_are_never_given_twice(world: World, lake: LakeOfTest) -> None:
    world.apply(a_join_table())
    requests = Requests(world)
    requests.arrive(some_changes(1, 40, NIGHT, requests=20, hours=1), NIGHT)
    requests.fold(NIGHT)
    found = [row[0] for row in lake.sql("SELECT data_file_id FROM prism_lake.ducklake_data_file")]
    assert len(found) == len(set(found)) > 3
    assert max(found) < lake.sql("SELECT next_catalog_id FROM prism_lake.ducklake_snapshot")[0][0]
