"""Rows of days that stay: of staging objects that are gone, and of small objects that were merged long ago."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.errors import StoreUnavailable
from prism_assets.domain.findings import Acts, Finding
from prism_assets.stages.drop.run import continue_drops, run_drop
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.findings.history import HISTORY
from prism_assets.stages.findings.objects import UNREAD
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.gc import archive as archiving
from prism_assets.stages.gc.report import NOTHING_ARCHIVED
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.history.run import preview_history, run_history
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.stream.unread import give_up_object
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import database_ages, delete_staging, hours_pass, keys, years_pass
from prism_assets_tests.stages.test_archive import archived, collect, count, expired
from prism_assets_tests.stages.test_drop import retire
from prism_assets_tests.stages.test_erase import later
from prism_assets_tests.stages.test_retention import (
    A_LONG_TIME,
    BOTH_SWITCHED,
    FIRST,
    FIRST_IS_OLD,
    SECOND,
    is_sound,
    two_days,
)
from prism_assets_tests.world import World

WITHOUT_RETENTION = a_table(merge="{interval: 0}")
CHILDREN = a_table(
    "log.items",
    merge="{interval: 0}",
    stream='url: "s3://staging/events/", format: {json: {records: "$.items[*]"}}',
)
MONTHS = 40 * 24.0
LATER = "2026-03-10"


@pytest.fixture
def world(services: Mapping[str, str], database_url: str, tmp_path: Path) -> Iterator[World]:
    """Garbage collections delete all garbage, and archive after 31 days."""
    with a_world(
        services, database_url, tmp_path, gc_max_fraction=1.0, catalog_compare_seconds=0, archive_after_days=31
    ) as made:
        yield made


def merged_long_ago(world: World) -> list[int]:
    """Two kept days, merged long ago, whose small objects have left the lake. Returns the ids of all rows."""
    first, second = two_days(world, WITHOUT_RETENTION)
    hours_pass(world, A_LONG_TIME)
    collect(world)
    database_ages(world, MONTHS)
    return first + second


def staging_keys(world: World) -> list[str]:
    return [item.key for item in world.context.stores.list("staging", "")]


def a_row_that_waits(world: World, day: str = FIRST) -> int:
    """A row of a day that was switched long ago, shown before its merge. Returns its id."""
    (row,) = some_rows(1, utc(f"{day}T18:00"))
    world.drop([row])
    world.stream(BOTH_SWITCHED)
    world.catalog(BOTH_SWITCHED)
    return int(row["id"])


def a_late_row(world: World, day: str = FIRST) -> int:
    """A row of a day that was switched long ago, merged and shown. Returns its id."""
    late = a_row_that_waits(world, day)
    world.merge(BOTH_SWITCHED, everything=True)
    world.catalog(BOTH_SWITCHED)
    return late


def months_after_the_merge(world: World) -> None:
    """Merges and switches all days. Then months pass, and nothing but the merged objects is left in S3."""
    for _ in range(3):
        world.merge(BOTH_SWITCHED, everything=True)
        world.catalog(BOTH_SWITCHED)
    hours_pass(world, A_LONG_TIME)
    run_gc(world.context)
    database_ages(world, MONTHS)
    delete_staging(world)


def unread(world: World) -> list[Finding]:
    return list(read_findings(world.context, None, [UNREAD], now=utc(BOTH_SWITCHED)))


def sums(world: World) -> list[tuple[Any, ...]]:
    """Returns of each range its archived objects and rows, and all of its rows."""
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT archived_objects, archived_rows, row_count FROM prism_merge_ranges "
            "WHERE lower_bound IS NOT NULL ORDER BY prism_partition_id, upper_bound"
        )
        return [tuple(row) for row in rows]


def test_rows_of_days_merged_long_ago_leave_postgresql_and_readers_keep_the_rows(world: World) -> None:
    first, second = two_days(world, WITHOUT_RETENTION)
    database_ages(world, MONTHS, of_publications=False)
    bodies = {key: world.context.stores.get("staging", key) for key in staging_keys(world)}
    delete_staging(world)
    assert keys(world, "/live/")
    assert collect(world).archived == NOTHING_ARCHIVED, "garbage collection knows small objects by their rows"
    hours_pass(world, A_LONG_TIME)
    dry = collect(world, dry_run=True)
    assert ([str(day) for day in dry.merged_days], dry.old_days) == ([FIRST, SECOND], ())
    assert dry.sentences(dry_run=True)[-1:] == [
        "log.events: metadata of 2 days, merged long ago, goes to the archive once their staging objects are gone"
    ]
    collect(world)
    assert collect(world).archived.objects == 2
    assert (count(world, "staging_objects"), count(world, "small_objects"), count(world, "archived_keys")) == (0, 0, 2)
    assert archived(world, "small_objects")["row_count"].to_pylist() == [4, 4]
    assert sums(world) == [(1, 4, 4), (1, 4, 4)]
    assert world.status(FIRST, BOTH_SWITCHED).rows == 4
    assert collect(world).archived == NOTHING_ARCHIVED

    for key, body in bodies.items():
        world.context.stores.put("staging", key, body)
    for _ in range(2):
        assert world.discover(BOTH_SWITCHED).new == 0, "keys that come again are not read again"
    world.stream(BOTH_SWITCHED)
    (told,) = unread(world)
    assert (told.count, told.acts, "come again and are not read" in told.says) == (2, Acts.PERSON, True)
    again, other = bodies
    give_up_object(world.context, again)
    assert [item.count for item in unread(world)] == [1]
    assert world.discover(BOTH_SWITCHED).new == 0
    assert [item.count for item in unread(world)] == [1], "a version that somebody accepted is told once"
    world.context.stores.put("staging", again, bodies[other])
    world.context.stores.delete("staging", [other])
    give_up_object(world.context, other)
    assert world.discover(BOTH_SWITCHED).new == 0
    assert [again in item.says for item in unread(world)] == [True], "another version is told again"
    give_up_object(world.context, again)
    assert sorted(world.ids()) == sorted([*first, *second])
    assert is_sound(world)

    retire(world)
    run_drop(world.context, "log.events", confirm="log.events", now=utc("2026-09-01T00:00"))
    hours_pass(world, A_LONG_TIME)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_drops SET hidden_time = hidden_time - interval '1000 hours'")
    for _ in range(3):
        assert continue_drops(world.context).errors == ()
    assert (keys(world), count(world, "archived_keys")) == ([], 0), "a dropped table forgets its keys"


def test_a_history_does_not_promise_the_keys_of_the_archive(world: World) -> None:
    world.apply(a_table(merge="{interval: 0}", accept="{from: object}"))
    rows = some_rows(4, utc(f"{FIRST}T12:00"))
    key = world.drop(rows, stream=f"events/dt={FIRST}")
    body = world.context.stores.get("staging", key)
    world.stream(f"{FIRST}T13:00")
    months_after_the_merge(world)
    assert collect(world).archived.objects == 1
    since = f'url: "s3://staging/events/", since: "{LATER}"'
    world.apply(a_table(merge="{interval: 0}", accept="{from: object}", stream=since))
    world.context.stores.put("staging", key, body)
    world.discover(f"{LATER}T12:00")
    assert [item.kind for item in read_findings(world.context, None, [UNREAD, HISTORY], now=utc(f"{LATER}T12:00"))] == [
        "unread_objects"
    ], "it came before `since`, and was read"
    day = date.fromisoformat(FIRST)
    plan = preview_history(world.context, "log.events", day, None, utc(f"{LATER}T12:00"))
    assert (plan.objects, plan.known) == (1, 1)
    report = run_history(world.context, "log.events", first=day, clock=lambda: utc(f"{LATER}T12:00"))
    assert (report.errors, report.registered, report.stream.objects) == ((), 0, 0)
    assert [item.count for item in unread(world)] == [1]
    assert world.ids() == [row["id"] for row in rows]


def test_a_new_table_reads_the_keys_that_left_with_the_metadata_of_another(world: World) -> None:
    world.apply(WITHOUT_RETENTION)
    row, item = some_rows(2, utc(f"{FIRST}T12:00"))
    key = world.drop([{**row, "items": [item]}])
    body = world.context.stores.get("staging", key)
    world.stream(f"{FIRST}T13:00")
    months_after_the_merge(world)
    assert collect(world).archived.objects == 1
    world.apply(CHILDREN)
    world.context.stores.put("staging", key, body)
    assert world.discover(BOTH_SWITCHED).new == 1
    world.stream(BOTH_SWITCHED)
    world.catalog(BOTH_SWITCHED)
    assert (world.ids(), world.ids(table="log.items")) == ([row["id"]], [item["id"]])


def test_digests_leave_long_after_their_day_expired(world: World) -> None:
    merged_long_ago(world)
    delete_staging(world)
    collect(world)
    assert count(world, "archived_keys") == 2
    world.apply(a_table(merge="{interval: 0}") + "retention_days: 3\n")
    expired(world, FIRST_IS_OLD)
    collect(world)
    assert count(world, "archived_keys") == 2, "the first day expired just now"
    years_pass(world)
    collect(world)
    assert count(world, "archived_keys") == 1, "the second day is kept"


def test_two_tables_of_a_prefix_with_quarantined_lines_let_each_other_go(world: World) -> None:
    world.apply(WITHOUT_RETENTION, CHILDREN)
    row, item = some_rows(2, utc(f"{FIRST}T12:00"))
    world.drop([{**row, "items": [item, {**item, "time": "never"}]}, {**row, "time": "never"}])
    world.stream(f"{FIRST}T13:00")
    months_after_the_merge(world)
    assert count(world, "quarantine") > 0
    run_gc(world.context)
    assert count(world, "staging_objects") == 0


def test_days_merged_lately_and_objects_that_a_rebuild_can_read_keep_their_rows(world: World) -> None:
    two_days(world, WITHOUT_RETENTION)
    hours_pass(world, A_LONG_TIME)
    collect(world)
    database_ages(world, MONTHS)
    assert collect(world).archived == NOTHING_ARCHIVED, "their staging objects exist"
    late = a_late_row(world)
    delete_staging(world)
    assert collect(world).archived.objects == 1, "the first day was merged again just now"
    assert late in world.ids()
    assert is_sound(world)


def test_an_archived_day_takes_late_rows_and_erasures_and_no_rebuild(world: World) -> None:
    ids = merged_long_ago(world)
    delete_staging(world)
    assert collect(world).archived.objects == 2
    late = a_late_row(world)
    assert sorted(world.ids()) == sorted([*ids, late])
    assert sums(world) == [(1, 4, 5), (1, 4, 4)], "the last range grew"
    assert is_sound(world)

    world.apply(a_table(columns=["{name: more, type: string}"], merge="{interval: 0}"))
    report = run_rebuild(
        world.context, "log.events", day=utc(FIRST).date(), without_missing=True, now=utc(BOTH_SWITCHED)
    )
    assert any("is in the archive (PRISM_ARCHIVE_AFTER_DAYS)" in str(error) for error in report.errors)

    hours_pass(world, A_LONG_TIME)
    collect(world)
    database_ages(world, MONTHS)
    assert run_erase(world.context, "log.events", f"id = {ids[0]}", rows=1, now=utc(BOTH_SWITCHED)).errors == ()
    database_ages(world, MONTHS)
    delete_staging(world)
    assert collect(world).archived == NOTHING_ARCHIVED, "the erasure is not proved"
    world.catalog(BOTH_SWITCHED)
    continue_erasures(world.context, forced=True)
    (erasure,) = continue_erasures(world.context, now=later(20), forced=True).erasures
    assert (erasure.state, erasure.rows_erased) == ("proved", 1)
    assert collect(world).archived.objects == 1
    assert sums(world) == [(2, 5, 4), (1, 4, 4)]
    assert sorted(world.ids()) == sorted([*ids[1:], late])
    assert is_sound(world)


def test_a_late_row_that_waits_for_its_merge_stays(world: World) -> None:
    merged_long_ago(world)
    late = a_row_that_waits(world)
    delete_staging(world)
    assert collect(world).archived.objects == 2
    assert count(world, "small_objects") == 1
    world.merge(BOTH_SWITCHED, everything=True)
    world.catalog(BOTH_SWITCHED)
    assert sums(world) == [(1, 4, 5), (1, 4, 4)]
    assert late in world.ids()
    assert is_sound(world)


def test_a_death_before_the_rows_are_gone_is_made_good_by_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = merged_long_ago(world)
    delete_staging(world)

    def die(name: str) -> None:
        if name == "gc.in_forget_objects":
            monkeypatch.undo()
            raise StoreUnavailable("it died here")

    monkeypatch.setattr(archiving, "failpoint", die)
    (table,) = run_gc(world.context).tables
    assert [str(problem) for problem in table.problems] == ["log.events: it died here"]
    assert sums(world) == [(0, 0, 4), (0, 0, 4)]
    collect(world)
    assert (count(world, "small_objects"), sums(world)) == (0, [(1, 4, 4), (1, 4, 4)])
    assert sorted(world.ids()) == sorted(ids)
    assert is_sound(world)
