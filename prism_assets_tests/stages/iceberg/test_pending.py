"""Tables that wait for a publication, with the reason, and tables that wait for something else."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime, timedelta

from sqlalchemy import text

from prism_assets.stages.iceberg.pending import (
    BEGIN,
    COLUMNS,
    COMPARE,
    DROP,
    PUBLISH,
    RESTORE,
    IcebergWork,
    find_iceberg_work,
)
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

AT_ONCE = a_table(iceberg="{commit_seconds: 1}")
NOON = "2026-03-01T12:00"


def work(world: World, now: str = NOON) -> list[IcebergWork]:
    return find_iceberg_work(world.context, now=utc(now))


def reasons(world: World) -> tuple[str, ...]:
    """Returns the reasons of the one table's publication, empty if none is due."""
    return tuple(reason for item in work(world) for reason in item.reasons)


def change(world: World, statement: str) -> None:
    with world.context.database.begin() as connection:
        assert connection.execute(text(statement)).rowcount


def a_minute_later(world: World) -> None:
    """As if all commits had been made, and the catalog asked, a minute before."""
    change(
        world,
        "UPDATE prism_iceberg_tables SET pace_time = pace_time - interval '1 minute', "
        "look_time = look_time - interval '1 minute'",
    )


def pace_time(world: World) -> datetime:
    with world.context.database.begin() as connection:
        time: datetime = connection.execute(text("SELECT pace_time FROM prism_iceberg_tables")).scalar_one()
    return time


def dropped(world: World, time: str = NOON) -> None:
    world.drop(some_rows(3, utc(time)))
    world.stream(time)


def a_published_table(world: World, table: str = AT_ONCE) -> None:
    world.apply(table)
    dropped(world)
    world.iceberg(NOON)
    a_minute_later(world)


def a_stranger_deletes(world: World) -> None:
    """Deletes all rows of the day, as a client with the right to commit."""
    publisher = world.context.iceberg
    (table,) = world.context.choose_tables(None)
    publisher.catalog.load_table(publisher.identifier(table)).delete("dt = '2026-03-01'")


def test_a_table_that_is_no_iceberg_waits_for_nothing(world: World) -> None:
    world.apply(a_table())
    dropped(world)
    assert work(world) == []


def test_a_table_is_begun_before_it_has_rows(world: World) -> None:
    world.apply(AT_ONCE)
    assert work(world) == [IcebergWork(table="log.events", date=date(2026, 3, 1), reasons=(BEGIN,))]
    world.iceberg(NOON)
    assert work(world) == []


def test_days_that_changed_are_counted_and_the_newest_is_named(world: World) -> None:
    a_published_table(world)
    assert work(world) == []
    dropped(world, "2026-02-27T10:00")
    dropped(world, "2026-02-28T10:00")
    assert work(world) == [IcebergWork(table="log.events", date=date(2026, 2, 28), reasons=(PUBLISH,), days=2)]
    world.iceberg(NOON)
    a_minute_later(world)
    assert work(world) == []


def test_a_table_that_was_just_committed_to_is_not_due(world: World) -> None:
    a_published_table(world, a_table(iceberg="{commit_seconds: 90}"))
    dropped(world)
    assert work(world) == []
    a_minute_later(world)
    assert reasons(world) == (PUBLISH,)


def test_a_table_that_is_due_soon_is_found_by_who_asks_for_it(world: World) -> None:
    a_published_table(world, a_table(iceberg="{commit_seconds: 90}"))
    dropped(world)
    assert find_iceberg_work(world.context, now=utc(NOON), within_seconds=10) == []
    (soon,) = find_iceberg_work(world.context, now=utc(NOON), within_seconds=60)
    assert soon.reasons == (PUBLISH,)


def test_commits_keep_their_pace_though_each_comes_late(world: World) -> None:
    a_published_table(world, a_table(iceberg="{commit_seconds: 50}"))
    begun = pace_time(world)
    dropped(world)
    assert world.iceberg(NOON, ignore_pace=False).changed
    assert pace_time(world) == begun + timedelta(seconds=50)


def test_commits_come_half_as_often_where_very_many_snapshots_are_retained(world: World) -> None:
    a_published_table(world, a_table(iceberg="{commit_seconds: 50}"))
    dropped(world)
    change(world, "UPDATE prism_iceberg_tables SET snapshots = 301")
    assert work(world) == []
    a_minute_later(world)
    assert reasons(world) == (PUBLISH,)


def test_what_is_found_is_what_a_publication_does_and_what_is_not_it_leaves(world: World) -> None:
    """The two decide by the same function when the next commit may come."""
    a_published_table(world, a_table(iceberg="{commit_seconds: 90}"))
    dropped(world)
    assert not run_iceberg(world.context, now=utc(NOON)).changed
    a_minute_later(world)
    assert run_iceberg(world.context, now=utc(NOON)).changed


def test_new_columns_are_due_until_the_table_has_them(world: World) -> None:
    a_published_table(world)
    world.apply(a_table(iceberg="{commit_seconds: 1}", columns=["{name: note, type: string}"]))
    assert reasons(world) == (COLUMNS,)
    world.iceberg(NOON)
    a_minute_later(world)
    assert reasons(world) == ()


def test_a_definition_that_changes_nothing_of_the_columns_is_due_once(world: World) -> None:
    a_published_table(world)
    world.apply(a_table(iceberg="{commit_seconds: 1}", merge="{interval: 60}"))
    assert reasons(world) == (COLUMNS,)
    assert not world.iceberg(NOON).changed
    assert reasons(world) == ()


def test_a_table_that_others_committed_to_is_due_until_it_is_restored(world: World) -> None:
    a_published_table(world)
    a_stranger_deletes(world)
    assert run_iceberg(world.context, now=utc(NOON)).errors
    assert reasons(world) == (RESTORE,)
    assert run_iceberg(world.context, now=utc(NOON)).changed
    a_minute_later(world)
    assert reasons(world) == ()


def test_a_table_that_waits_for_a_person_is_compared_at_times_and_never_more_often(world: World) -> None:
    a_published_table(world, a_table(iceberg="{commit_seconds: 1, on_foreign: stop}"))
    a_stranger_deletes(world)
    dropped(world)
    assert run_iceberg(world.context, now=utc(NOON)).errors
    a_minute_later(world)
    assert reasons(world) == ()
    change(world, "UPDATE prism_iceberg_tables SET look_time = look_time - interval '1 hour'")
    assert reasons(world) == (COMPARE,)
    assert run_iceberg(world.context, now=utc(NOON)).errors
    assert reasons(world) == ()


def test_a_name_that_belongs_to_another_table_is_not_tried_at_every_look(world: World) -> None:
    world.apply(AT_ONCE)
    with world.context.database.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO prism_iceberg_tables (prism_table_id, identifier, state, last_error, look_time) "
                "SELECT prism_table_id, 'a.b', 'failed', 'taken', now() FROM prism_tables"
            )
        )
    assert reasons(world) == ()
    change(world, "UPDATE prism_iceberg_tables SET look_time = look_time - interval '1 hour'")
    assert reasons(world) == (COMPARE,)


def test_a_quiet_table_is_compared_with_the_catalog_at_times(world: World) -> None:
    a_published_table(world)
    change(world, "UPDATE prism_iceberg_tables SET look_time = look_time - interval '1 hour'")
    assert reasons(world) == (COMPARE,)
    assert not world.iceberg(NOON).changed
    assert reasons(world) == ()


def test_a_table_whose_file_names_no_iceberg_any_more_is_to_be_dropped(world: World) -> None:
    a_published_table(world)
    world.apply(a_table())
    assert reasons(world) == (DROP,)
    world.iceberg(NOON)
    assert work(world) == []


def test_asking_does_not_load_the_library_that_commits() -> None:
    code = "import sys, prism_assets.stages.iceberg.pending; print('pyiceberg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
