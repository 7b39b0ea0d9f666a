"""Metadata that leaves PostgreSQL: of objects with long expired days, and of the log of merges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from prism_assets.domain.errors import StoreUnavailable
from prism_assets.metadata.files import archive as statements
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.drop.run import continue_drops, run_drop
from prism_assets.stages.erase.report import ErasureStatus
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.gc import archive as archiving
from prism_assets.stages.gc.plan import Horizon, plan_gc
from prism_assets.stages.gc.report import NOTHING_ARCHIVED, Archived, ObjectSum, TableGcReport
from prism_assets.stages.gc.run import run_gc
from prism_assets_tests.builders import as_lines, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.parquet import read_parquet
from prism_assets_tests.stages.aging import delete_staging, hours_pass, keys, years_pass
from prism_assets_tests.stages.test_drop import retire
from prism_assets_tests.stages.test_erase import later
from prism_assets_tests.stages.test_retention import (
    A_LONG_TIME,
    BOTH_ARE_OLD,
    FIRST,
    FIRST_IS_OLD,
    KEPT,
    SECOND,
    catalog,
    is_sound,
    lease_ends,
    state,
    two_days,
)
from prism_assets_tests.world import World


@pytest.fixture
def world(services: Mapping[str, str], database_url: str, tmp_path: Path) -> Iterator[World]:
    """Garbage collections delete all garbage."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, catalog_compare_seconds=0) as made:
        yield made


def expired(world: World, now: str = BOTH_ARE_OLD) -> None:
    """Expires old days, and deletes their bytes."""
    catalog(world, now)
    lease_ends(world)
    hours_pass(world, A_LONG_TIME)
    collect(world)


def two_old_days(world: World) -> None:
    """Two long expired days without staging objects."""
    two_days(world)
    expired(world)
    years_pass(world)
    delete_staging(world)


def collect(world: World, **more: Any) -> TableGcReport:
    (table,) = run_gc(world.context, **more).tables
    assert table.problems == ()
    return table


def count(world: World, kind: str) -> int:
    with world.context.database.begin() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM prism_{kind}").scalar_one())


def archived(world: World, kind: str) -> pa.Table:
    bodies = [world.context.stores.get("lake", key) for key in keys(world, f"/archive/{kind}/")]
    return pa.concat_tables([read_parquet(body) for body in bodies])


def test_objects_of_days_that_expired_long_ago_leave_postgresql(world: World) -> None:
    two_days(world)
    expired(world)
    delete_staging(world)
    assert collect(world).archived == NOTHING_ARCHIVED, "they expired just now"
    merges = count(world, "merge_job_log")
    years_pass(world)
    dry = collect(world, dry_run=True)
    assert dry.old_days == (date.fromisoformat(FIRST), date.fromisoformat(SECOND))
    assert dry.sentences(dry_run=True) == [
        "log.events: metadata of 2 days, expired long ago, goes to the archive once their staging objects are gone"
    ]
    assert (dry.archived, count(world, "staging_objects")) == (NOTHING_ARCHIVED, 2)
    report = collect(world)
    assert report.archived == Archived(objects=2, merges=merges)
    assert (count(world, "staging_objects"), count(world, "small_objects"), count(world, "merge_job_log")) == (0, 0, 0)
    objects = archived(world, "staging_objects")
    assert objects.schema.field("finish_time").type == pa.timestamp("us", "UTC")
    assert (objects["rows_out"].to_pylist(), objects["state"].to_pylist()) == ([4, 4], ["done", "done"])
    small = archived(world, "small_objects")
    assert "metrics" not in small.column_names, "they hold values, which no erasure would find there"
    assert small["row_count"].to_pylist() == [4, 4]
    assert archived(world, "merge_job_log").num_rows == merges
    assert (state(world, FIRST), state(world, SECOND)) == ("expired", "expired")
    assert collect(world).archived == NOTHING_ARCHIVED
    assert collect(world).foreign_keys == ()
    assert is_sound(world)


def test_staging_objects_that_are_still_there_keep_their_rows(world: World) -> None:
    two_days(world)
    expired(world)
    years_pass(world)
    assert collect(world).archived.objects == 0
    delete_staging(world, but=1)
    assert collect(world).archived.objects == 1
    assert run_discover(world.context, now=utc(BOTH_ARE_OLD)).new == 0
    assert is_sound(world)


def test_an_object_whose_later_version_nobody_has_dismissed_keeps_its_rows(world: World) -> None:
    two_old_days(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_staging_objects SET overwritten_time = now(), dismissed = false "
            "WHERE prism_staging_object_id = (SELECT min(prism_staging_object_id) FROM prism_staging_objects)"
        )
    assert collect(world).archived.objects == 1
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET dismissed = true")
    assert collect(world).archived.objects == 1


def test_a_run_ends_after_many_objects_and_the_next_one_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "_MOST_OBJECTS", 1)
    two_old_days(world)
    assert [collect(world).archived.objects for _ in range(3)] == [1, 1, 0]


def test_a_bucket_that_is_away_keeps_its_rows(world: World) -> None:
    two_days(world)
    expired(world)
    years_pass(world)
    staging = world.root / "buckets" / "staging"
    staging.rename(world.root / "elsewhere")
    assert collect(world).archived.objects == 0
    (world.root / "elsewhere").rename(staging)
    assert run_discover(world.context, now=utc(BOTH_ARE_OLD)).new == 0


def test_days_behind_some_with_all_of_their_objects_are_not_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_days(world)
    expired(world)
    years_pass(world)
    monkeypatch.setattr(archiving, "_MOST_DAYS_IN_VAIN", 1)
    delete_staging(world, but=1)
    now = datetime.now(timezone.utc)
    night = now + timedelta(days=(now - timedelta(days=world.settings.metadata_days)).toordinal() % 2)
    assert collect(world, now=night).archived.objects == 0, "that of the first day is there"
    assert collect(world, now=night + timedelta(days=1)).archived.objects == 1, "it begins with the second"


def test_an_object_with_rows_of_a_kept_day_keeps_its_rows(world: World) -> None:
    _, second = two_days(world)
    world.drop(some_rows(2, utc(f"{FIRST}T12:00")) + some_rows(2, utc(f"{SECOND}T12:00"), first_id=900))
    world.stream(FIRST_IS_OLD)
    world.merge(FIRST_IS_OLD, everything=True)
    expired(world, FIRST_IS_OLD)
    years_pass(world)
    delete_staging(world)
    assert collect(world).archived.objects == 1
    assert count(world, "staging_objects") == 2
    assert set(second) <= set(world.ids())
    assert is_sound(world)


def test_lines_in_quarantine_keep_their_object(world: World) -> None:
    two_days(world)
    world.drop([], body=as_lines(some_rows(1, utc(f"{SECOND}T12:00"))) + b"broken\n")
    world.stream(FIRST_IS_OLD)
    world.merge(FIRST_IS_OLD, everything=True)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET first_receive_time = clock_timestamp()")
    lines = "UPDATE prism_quarantine SET object_key = {}"
    with world.context.database.begin() as connection:
        (key,) = connection.exec_driver_sql("SELECT object_key FROM prism_quarantine").scalars()
    expired(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(lines.format(f"'{key}'"))
    years_pass(world)
    delete_staging(world)
    assert collect(world).archived.objects == 2
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(lines.format("NULL"))
    assert collect(world).archived.objects == 1
    assert archived(world, "quarantine")["line_count"].to_pylist() == [1]
    assert is_sound(world)


def test_an_erasure_that_is_not_proved_keeps_its_objects(world: World) -> None:
    ids, _ = two_days(world)
    run_erase(world.context, "log.events", f"id = {ids[0]}", rows=1, now=utc(BOTH_ARE_OLD))
    expired(world)
    years_pass(world)
    delete_staging(world)
    assert count(world, "erasure_sources") == 1
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_erasures SET state = 'rewriting', proof = NULL")
    assert collect(world).archived == NOTHING_ARCHIVED
    with world.context.database.begin() as connection:
        now = datetime.now(timezone.utc)
        days = statements.load_old_days(connection, 1, expired_before=now, merged_before=now)
        ids = [day.partition_id for day in days]
        pages = [statements.find_old_objects(connection, number, ids, 0) for number in ids]
        assert sum(len(page.objects) for page in pages if page) == 1, "also where it began during the run"
        connection.exec_driver_sql("UPDATE prism_erasures SET state = 'proved', proof = '{}'")
    assert collect(world).archived.objects == 2
    assert is_sound(world)


@pytest.mark.parametrize("point", ["gc.after_archive", "gc.in_forget_objects", "gc.after_forget_objects"])
def test_a_death_anywhere_is_made_good_by_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    two_old_days(world)

    def die(name: str) -> None:
        if name == point:
            monkeypatch.undo()
            raise StoreUnavailable("it died here")

    monkeypatch.setattr(archiving, "failpoint", die)
    (table,) = run_gc(world.context).tables
    assert [str(problem) for problem in table.problems] == ["log.events: it died here"]
    collect(world)
    assert (count(world, "staging_objects"), count(world, "small_objects")) == (0, 0)
    assert set(archived(world, "staging_objects")["prism_staging_object_id"].to_pylist()) == {1, 2}
    assert is_sound(world)


def test_the_archive_goes_with_its_table(world: World) -> None:
    two_old_days(world)
    collect(world)
    hours_pass(world, A_LONG_TIME)
    (table,) = world.context.choose_tables(None)
    horizon = Horizon.at(datetime.now(timezone.utc), world.settings)
    assert plan_gc(world.context, table, horizon).garbage == ()
    dropped = plan_gc(world.context, table, replace(horizon, dropped=ObjectSum()))
    archive = set(keys(world, "/archive/"))
    assert archive
    assert {item.key for item in dropped.garbage} >= archive


def an_erasure(world: World) -> ErasureStatus:
    """Erases a row without an id, like rows with unknown values, up to the proof."""
    rows = some_rows(4, utc(f"{BOTH_ARE_OLD[:10]}T12:00"))
    rows[0].pop("id")
    world.drop([], body=as_lines(rows))
    world.stream(f"{BOTH_ARE_OLD[:10]}T13:00")
    closed = f"{utc(BOTH_ARE_OLD) + timedelta(days=1):%Y-%m-%d}T01:00"
    catalog(world, closed)
    assert run_erase(world.context, "log.events", "id IS NULL", rows=1).errors == ()
    catalog(world, closed)
    continue_erasures(world.context, forced=True)
    (erasure,) = continue_erasures(world.context, now=later(20), forced=True).erasures
    return erasure


def test_an_erasure_is_proved_beside_an_archive(world: World) -> None:
    two_old_days(world)
    assert collect(world).archived.objects == 2
    proved = an_erasure(world)
    assert (proved.state, proved.proof and proved.proof["matches"]) == ("proved", 0)
    assert keys(world, "/archive/")


def test_an_erasure_archives_nothing(world: World) -> None:
    two_old_days(world)
    assert (an_erasure(world).state, keys(world, "/archive/")) == ("proved", [])
    assert collect(world).archived.objects == 2


def test_what_has_quarantined_lines_in_the_lake_stays_on_record(world: World) -> None:
    two_old_days(world)
    (table,) = world.context.choose_tables(None)
    root = world.context.lake.keys(table).root
    strays = [f"{root}quarantine/dt=2026-02-{day:02d}/prism-{1:019d}.jsonl.gz" for day in range(1, 21)]
    for key in strays:
        world.context.stores.put("lake", key, b"lines")
    hours_pass(world, A_LONG_TIME)
    slow = replace(world.context, settings=world.settings.model_copy(update={"gc_max_fraction": 0.1}))
    (report,) = run_gc(slow).tables
    assert (report.archived.objects, count(world, "staging_objects")) == (1, 1)
    collect(world)
    assert (keys(world, "/quarantine/"), collect(world).foreign_keys) == ([], ())
    assert count(world, "staging_objects") == 0


def test_metadata_of_kept_days_stays_longer_than_lines_that_may_be_replayed(world: World) -> None:
    now = datetime.now(timezone.utc)
    settings = world.settings.model_copy(update={"quarantine_days": 400, "archive_after_days": 365})
    assert Horizon.at(now, settings).merged_before == now - timedelta(days=401)


def test_nothing_of_a_dropped_table_is_archived(world: World) -> None:
    two_days(world)
    expired(world)
    years_pass(world)
    retire(world)
    run_drop(world.context, "log.events", confirm="log.events", now=utc(f"{BOTH_ARE_OLD[:4]}-09-01T00:00"))
    delete_staging(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_drops SET hidden_time = hidden_time - interval '1000 hours'")
    for _ in range(3):
        assert continue_drops(world.context).errors == ()
    assert keys(world) == []


def test_objects_that_stay_in_their_buckets_do_not_keep_younger_days_from_the_archive(world: World) -> None:
    days = [f"2026-03-{day:02d}" for day in range(1, 9)]
    world.apply(KEPT)
    stay = []
    for day in days:
        for number in range(2):
            key = world.drop([], body=as_lines(some_rows(2, utc(f"{day}T12:00"))))
            stay += [key] if number == 0 and day <= days[4] else []
        world.stream(f"{day}T13:00")
    for _ in range(3):
        world.merge("2026-03-10T12:00", everything=True)
        catalog(world, "2026-03-10T12:00")
    expired(world, "2026-03-20T00:10")
    years_pass(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_partitions SET expire_time = expire_time + interval '1 year' "
            "WHERE partition_date > '2026-03-05'"
        )
    there = [item.key for item in world.context.stores.list("staging", "")]
    world.context.stores.delete("staging", [key for key in there if key not in stay])
    assert collect(world).archived.objects == 5
    years_pass(world)
    now = datetime.now(timezone.utc)
    for night in range(2):
        run_gc(world.context, now=now + timedelta(days=night))
    assert count(world, "staging_objects") == len(stay)


def test_days_with_objects_in_the_lake_are_not_old_yet(world: World) -> None:
    two_days(world)
    catalog(world, BOTH_ARE_OLD)
    years_pass(world)
    delete_staging(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_publications SET withdraw_time = clock_timestamp()")
    report = collect(world)
    assert (report.deleted, report.old_days) == ({}, ())
    assert count(world, "staging_objects") == 2
