"""Numbers whose keys are taken cost no run, however many: by runs that died, or before PostgreSQL was set back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.records.folding import RecordPart
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.iceberg.adopt import run_adopt
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.backups import a_backup
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.requests import Requests, a_join_table, front, some_changes
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.engines import rest_is_over
from prism_assets_tests.world import World

DAY = date(2026, 3, 1)
NOON, NIGHT, LATER = "2026-03-01T12:00", "2026-03-02T01:00", "2026-03-02T02:00"
OVER = "2026-03-02T01:40"
"""When no record of the day can change any more."""
TAKEN = range(1, 13)
_FOREIGN = pa.table([[1]], pa.schema([pa.field("other", pa.int64(), metadata={"PARQUET:field_id": "1"})]))


def take(world: World, taken: Sequence[str]) -> None:
    """Puts an object with a foreign row under each of some keys."""
    for key in taken:
        path = world.root / "buckets" / "lake" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_FOREIGN, path)


def keys_of(world: World, name: str = "log.events") -> TableKeys:
    (table,) = world.context.choose_tables([name])
    return world.context.lake.keys(table)


def take_numbers(world: World, folder: str) -> None:
    """Takes the keys that the one object in a folder gets from the next twelve rewrites."""
    (key,) = [key for key in keys(world, folder) if key.endswith(".parquet")]
    with world.context.database.begin() as connection:
        last = connection.exec_driver_sql("SELECT coalesce(max(prism_rewrite_id), 0) FROM prism_rewrites").scalar_one()
    name = key.replace("/live/", "/delayed/").removesuffix(".parquet").partition("-r")[0]
    take(world, [f"{name}-r{last + number}.parquet" for number in TAKEN])


def take_folds(requests: Requests) -> None:
    """Takes the next twelve numbers of folds, each for every bucket and cohort that an object may have."""
    with requests.world.context.database.begin() as connection:
        last = connection.exec_driver_sql("SELECT max(prism_rewrite_id) FROM prism_rewrites").scalar_one()
    own, there = keys_of(requests.world, "log.request"), keys(requests.world, "/fold-")
    places = {(own.parse(key).bucket, own.parse(key).cohort) for key in there}  # type: ignore[union-attr]
    places |= {(0, group) for group in range(4)}
    take(
        requests.world,
        [
            own.record_object(DAY, part, last + number, bucket, cohort)
            for number in TAKEN
            for part in RecordPart
            for bucket, cohort in places
        ],
    )


def test_folds_that_a_restore_took_back_cost_no_run(world: World, postgres: PostgresServer) -> None:
    world.apply(a_join_table(lateness="90h", buckets=1))
    requests = Requests(world)
    requests.arrive([("front", front("a", NOON, "home"))], "2026-03-01T12:01")
    requests.show("2026-03-01T12:01")
    with a_backup(postgres, world) as backup:
        for number in range(8):
            now = f"2026-03-01T12:1{number}"
            requests.arrive([("front", front(f"b{number}", NOON, "home"))], now)
            requests.fold(now)
        restored = backup.restore()
        rest_is_over(restored)
        assert restored.stream(NIGHT).errors == ()
        assert run_fold(restored.context, now=utc(NIGHT), ignore_pace=True).errors == ()
        restored.catalog(NIGHT)
        assert len(Requests(restored).seen()) == 9


@pytest.fixture
def requests(world: World) -> Requests:
    """Records of one day, settled and not merged yet."""
    world.apply(a_join_table(buckets=1))
    made = Requests(world)
    made.arrive(some_changes(3, 60, NOON, requests=20, hours=2), NOON)
    made.show(NOON)
    world.discover(OVER)
    made.fold(OVER)
    return made


def test_a_merge_of_settled_records_jumps_over_all_numbers_that_are_taken(requests: Requests) -> None:
    before = requests.seen()
    take_folds(requests)
    report = requests.world.merge(OVER, everything=True)
    assert report.errors == ()
    assert any(item.table_id == requests.table.table_id for item in report.merged)
    requests.world.catalog(OVER)
    assert requests.seen() == before


def test_an_erasure_of_settled_records_jumps_over_all_numbers_that_are_taken(requests: Requests) -> None:
    gone, *left = requests.seen()
    take_folds(requests)
    report = run_erase(requests.world.context, "log.request", f"request_id = '{gone[0]}'", rows=None)
    assert report.errors == ()
    requests.world.catalog(OVER)
    assert requests.seen() == left


def test_a_rebuild_of_records_jumps_over_all_numbers_that_are_taken(requests: Requests) -> None:
    before = requests.seen()
    (lost, *_) = [key for key in keys(requests.world, "/records/") if key.endswith(".parquet")]
    take(requests.world, [lost])
    take_folds(requests)
    report = run_rebuild(requests.world.context, "log.request", now=utc(OVER))
    assert report.errors == ()
    requests.world.catalog(OVER)
    assert requests.seen() == before


@pytest.fixture
def ids(world: World) -> list[int]:
    """The rows of one small object of a closed day."""
    world.apply(a_table(merge="{interval: 0}"))
    rows = some_rows(40, utc(NOON))
    world.drop(rows)
    world.stream(NOON)
    world.catalog(NIGHT)
    return sorted(row["id"] for row in rows)


def merge(world: World, now: str = NIGHT) -> None:
    world.catalog(now)
    assert world.merge(now, everything=True).errors == ()
    world.catalog(now)


def test_a_merge_jumps_over_all_numbers_that_are_taken(world: World, ids: list[int]) -> None:
    own = keys_of(world)
    take(world, [own.merged_object(DAY, 0, 1, number) for number in (0, *TAKEN)])
    merge(world)
    assert world.ids() == ids
    assert any("-r13.parquet" in key for key in keys(world, "/merged/"))


@pytest.mark.parametrize("folder", ["/live/", "/merged/"])
def test_an_erasure_jumps_over_all_numbers_that_are_taken(world: World, ids: list[int], folder: str) -> None:
    if folder == "/merged/":
        merge(world)
    take_numbers(world, folder)
    report = run_erase(world.context, "log.events", f"id = {ids[3]}")
    assert report.errors == ()
    world.catalog(LATER)
    assert world.ids() == [*ids[:3], *ids[4:]]


def test_a_rebuild_jumps_over_all_numbers_that_are_taken(world: World, ids: list[int]) -> None:
    merge(world)
    take_numbers(world, "/merged/")
    take_numbers(world, "/live/")
    world.apply(a_table(merge="{interval: 0}", columns=["{name: mark, type: bigint, value: '7'}"]))
    report = run_rebuild(world.context, "log.events", day=DAY, now=utc(LATER))
    assert report.errors == ()
    world.catalog(LATER)
    assert world.query("SELECT DISTINCT mark FROM log.events") == [(7,)]
    assert world.ids() == ids


def test_an_adoption_jumps_over_all_numbers_that_are_taken(world: World) -> None:
    world.apply(a_table(merge="{interval: 0}") + "timestamps: milliseconds\n")
    rows = some_rows(6, utc(NOON))
    world.drop(rows)
    world.stream(NOON)
    merge(world)
    take_numbers(world, "/merged/")
    world.apply(a_table(merge="{interval: 0}", iceberg="true"))
    report = run_adopt(world.context, "log.events", since=None)
    assert (report.problems, report.objects) == ((), 1)
    world.catalog(LATER)
    assert world.ids() == sorted(row["id"] for row in rows)
