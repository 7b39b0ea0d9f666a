"""Readers while rows are erased: of open days, of Iceberg and of DuckLake."""

from __future__ import annotations

from prism_assets.domain.findings import Acts
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.stages.findings.erasures import ERASURES, ERASURES_PROVED
from prism_assets.stages.findings.registry import read_findings
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.crash.reader import Poller
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.stages.test_erase import NAME, NOON, arrive, erase, go_on, later, matching_objects
from prism_assets_tests.stages.test_erase import TABLE as ERASABLE
from prism_assets_tests.stages.test_erase import world as world
from prism_assets_tests.world import World

ICEBERG = a_table(
    columns=["{name: user_id, type: bigint}"], merge="{interval: 0}", iceberg="{keep_hours: 4, daily_tags: 0}"
)


def test_readers_of_open_closed_and_switched_days_lose_no_other_row_and_see_none_twice(world: World) -> None:
    world.apply(ERASABLE)
    for day, late in (("2026-03-01", 3), ("2026-03-02", 3), ("2026-03-03", 12)):
        for _ in range(late):
            world.drop(some_rows(40, utc(f"{day}T12:00")))
        world.stream(f"{day}T12:00")
        world.catalog(f"{day}T12:00")
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T00:10")
    world.catalog("2026-03-03T00:10")
    ids = world.ids()
    poller = Poller(world.settings, [NAME], every=0.01, erased={NAME: 13})
    poller.start()
    erased = sum(number % 13 == 0 for number in ids)
    status = erase(world, "id % 13 = 0", rows=erased)
    assert (status.state, status.open_objects) == ("rewriting", 12)
    world.catalog("2026-03-03T12:10")
    world.catalog("2026-03-04T00:10")
    status = go_on(world).erasures[0]
    world.catalog("2026-03-04T00:20")
    assert poller.finish() == []
    assert poller.looks >= 3
    assert status.rows_erased == erased
    assert world.ids() == [number for number in ids if number % 13]
    assert (len(keys(world, "/delayed/")), len(keys(world, "/part-"))) == (15, 2), "all objects of three days"


def test_iceberg_lists_rewritten_objects_with_its_next_commit_and_no_snapshot_of_before(world: World) -> None:
    world.apply(ICEBERG)
    arrive(world, [42, 1] + [2] * 20)
    world.catalog(NOON)
    world.iceberg("2026-03-01T12:10")
    arrive(world, [1] * 20)
    world.iceberg("2026-03-01T12:20")
    assert erase(world).state == "rewriting", "the day is open"
    world.catalog("2026-03-02T00:05")
    assert go_on(world).erasures[0].state == "publishing"
    assert len(world.iceberg_ids()) == len(world.ids()) == 42, "catalogs name the older objects"
    world.catalog("2026-03-02T00:10")
    assert len(world.ids()) == 41
    assert go_on(world).erasures[0].state == "publishing"
    report = world.iceberg("2026-03-02T00:10")
    assert report.tables[0].commit is not None
    assert len(world.iceberg_ids()) == 41
    assert len(world.iceberg_table().metadata.snapshots) == 1
    assert go_on(world).erasures[0].state == "waiting"
    world.merge("2026-03-02T00:10")
    world.catalog("2026-03-02T00:20")
    world.iceberg("2026-03-02T00:30")
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []
    assert len(world.iceberg_ids()) == 41


def test_daily_tags_go_and_a_tag_of_somebody_keeps_an_erasure_from_its_proof_until_it_goes(world: World) -> None:
    world.apply(ICEBERG.replace("daily_tags: 0", "daily_tags: 3"))
    arrive(world, [42, 1] + [2] * 20)
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T00:10")
    world.catalog("2026-03-02T00:20")
    world.iceberg("2026-03-02T00:30", optimize=True)
    world.iceberg("2026-03-02T00:31", optimize=True)
    table = world.iceberg_table()
    tagged = table.metadata.current_snapshot_id
    assert [name for name in table.metadata.refs if name.startswith("day-")] == ["day-2026-03-01"]
    assert tagged is not None
    with IcebergReader(world.settings) as reader:
        reader.table(NAME).manage_snapshots().create_tag(tagged, "theirs").commit()
    erase(world)
    world.catalog("2026-03-02T01:00")
    for minute in (0, 1, 2):
        world.iceberg(f"2026-03-02T01:0{minute}")
    assert sorted(world.iceberg_table().metadata.refs) == ["main", "theirs"]
    go_on(world)
    status = go_on(world, later()).erasures[0]
    assert status.state == "waiting"
    assert "1 row or line still matches" in str(status.waits_for)
    assert read_findings(world.context, None, [ERASURES], now=utc(NOON))[0].acts is Acts.TIME
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_erasures SET create_time = create_time - interval '7 days', "
            "open_time = open_time - interval '7 days', rewritten_time = rewritten_time - interval '7 days'"
        )
    (left,) = read_findings(world.context, None, [ERASURES], now=utc(NOON))
    assert left.acts is Acts.PERSON
    assert "1 row or line still matches" in left.text
    told = check(world, ERASURES_PROVED, NOON).sentence
    assert "should be proved by now: it is waiting, and waits for 1 row or line" in told
    assert told.endswith("What holds it may stay for ever: see to it, then run `prism erase --continue`")
    with IcebergReader(world.settings) as reader:
        reader.table(NAME).manage_snapshots().remove_tag("theirs").commit()
    world.iceberg("2026-03-02T01:10")
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []
    world.iceberg("2026-03-02T01:20", optimize=True)
    world.iceberg("2026-03-02T01:21", optimize=True)
    assert "day-2026-03-01" in world.iceberg_table().metadata.refs, "at what is shown now"
