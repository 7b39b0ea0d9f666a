"""Retention: days older than their table keeps rows leave every catalog, and then the store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.stages.apply.plan import ApplyPlan
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.catalog.report import TableReport
from prism_assets.stages.checks.intake import ROWS_BALANCE
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase import rows as row_erasure
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.quarantine import quarantined_lines
from prism_assets.stages.rebuild import day as day_rebuild
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair import commit as repair_commit
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.commit import release_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.crash.reader import IdReader
from prism_assets_tests.findings import says
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import hours_pass, keys
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.stages.test_repair import as_of_another_version, small_keys
from prism_assets_tests.world import World

FIRST, SECOND = "2026-03-01", "2026-03-02"
BOTH_SWITCHED = "2026-03-03T12:00"
FIRST_IS_OLD = "2026-03-05T00:10"
"""With three days kept, the first is too old from the beginning of the fifth on."""
BOTH_ARE_OLD = "2026-03-06T00:10"
KEPT = a_table(merge="{interval: 0}") + "retention_days: 3\n"
A_LONG_TIME = 100.0


@pytest.fixture
def world(services: Mapping[str, str], database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform whose garbage collections delete all garbage, and whose catalog runs always compare the catalog."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, catalog_compare_seconds=0) as made:
        yield made


def arrive(world: World, day: str, now: str | None = None, broken: int = 0) -> list[int]:
    rows = some_rows(4, utc(f"{day}T12:00"))
    world.drop([], body=as_lines(rows) + b"broken\n" * broken)
    world.stream(now or f"{day}T13:00")
    return [row["id"] for row in rows]


def two_days(world: World, table: str = KEPT) -> tuple[list[int], list[int]]:
    """Two days, merged and switched; the ids of their rows."""
    world.apply(table)
    ids = arrive(world, FIRST), arrive(world, SECOND)
    for _ in range(2):
        world.merge(BOTH_SWITCHED, everything=True)
        world.catalog(BOTH_SWITCHED)
    world.merge(BOTH_SWITCHED, everything=True)
    world.catalog(BOTH_SWITCHED)
    assert world.status(FIRST, BOTH_SWITCHED).state == world.status(SECOND, BOTH_SWITCHED).state == "switched"
    return ids


def catalog(world: World, now: str) -> TableReport:
    (report,) = world.catalog(now).tables
    return report


def state(world: World, day: str, now: str = BOTH_ARE_OLD) -> str:
    return world.status(day, now).state


def days_of_lake(world: World) -> list[str]:
    """Returns the days shown to clients of DuckLake."""
    return sorted(str(day) for day in IdReader(world.settings).look_at_lake(world.context.database, "log.events"))


def is_sound(world: World) -> bool:
    found = run_doctor(world.context, deep=True)
    repair = run_repair(world.context, deep=True)
    assert (found.findings, found.unseen, repair.missing, repair.errors) == ((), (), 0, ())
    return True


def test_a_day_leaves_every_catalog_when_it_is_older_than_its_table_keeps_rows(world: World) -> None:
    first, second = two_days(world)
    assert catalog(world, "2026-03-04T23:50").expired == ()
    assert (world.ids(), days_of_lake(world)) == (first + second, [FIRST, SECOND])
    report = catalog(world, FIRST_IS_OLD)
    assert report.expired == report.withdrawn == (date.fromisoformat(FIRST),)
    assert (world.ids(), days_of_lake(world)) == (second, [SECOND])
    assert (state(world, FIRST), state(world, SECOND)) == ("expired", "switched")
    assert not catalog(world, FIRST_IS_OLD).changed
    assert is_sound(world)


def test_dry_run_sensor_and_status_say_what_the_run_will_do(world: World) -> None:
    two_days(world)
    steps = [str(step) for step in preview(world.context, now=utc(FIRST_IS_OLD))]
    assert [step for step in steps if FIRST in step] == [
        f"log.events {FIRST}: expire, as it is older than retention_days"
    ]
    assert ("expire", date.fromisoformat(FIRST)) in {
        (item.kind, item.date) for item in find_work(world.context, "catalog", now=utc(FIRST_IS_OLD))
    }
    assert says(world.status(FIRST, FIRST_IS_OLD).findings) == ["waits for the next catalog run, to expire"]
    catalog(world, FIRST_IS_OLD)
    assert world.status(FIRST, FIRST_IS_OLD).findings == ()
    assert FIRST not in str(find_work(world.context, "catalog", now=utc(FIRST_IS_OLD)))


def test_a_clock_that_is_ahead_ends_no_day_and_nothing_says_it_would(world: World) -> None:
    two_days(world, KEPT.replace("retention_days: 3", "retention_days: 3650"))
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_partitions SET revision = revision + 1")
    ahead = utc("2040-03-01T00:10")
    steps = [str(step) for step in preview(world.context, now=ahead)]
    assert [step for step in steps if FIRST in step] == [f"log.events {FIRST}: publish"]
    assert "expire" not in {item.kind for item in find_work(world.context, "catalog", now=ahead)}
    assert "expire" not in str(world.status(FIRST, "2040-03-01T00:10").findings)
    assert catalog(world, "2040-03-01T00:10").expired == ()


def test_its_objects_go_when_its_readers_are_done_and_all_others_stay(world: World) -> None:
    _, second = two_days(world)
    catalog(world, FIRST_IS_OLD)
    hours_pass(world, A_LONG_TIME)
    assert [key for key in keys(world) if FIRST in key]
    collect(world)
    assert [key for key in keys(world) if FIRST in key], "the day was withdrawn only just now"
    lease_ends(world)
    assert "expired" in collect(world)
    assert [key for key in keys(world) if FIRST in key] == []
    assert world.ids() == second
    assert is_sound(world)
    assert collect(world) == {}


def collect(world: World) -> dict[str, int]:
    (table,) = run_gc(world.context).tables
    assert table.problems == ()
    return {reason: item.objects for reason, item in table.deleted.items()}


def lease_ends(world: World) -> None:
    """As if the days had expired, and been withdrawn, so long ago."""
    with world.context.database.begin() as connection:
        hours = f"interval '{A_LONG_TIME} hours'"
        connection.exec_driver_sql(f"UPDATE prism_partitions SET expire_time = expire_time - {hours}")
        connection.exec_driver_sql(f"UPDATE prism_publications SET withdraw_time = withdraw_time - {hours}")


def test_objects_of_a_day_that_glue_still_shows_are_not_deleted(world: World) -> None:
    """A call of long ago lands late. The next catalog run removes the day again."""
    two_days(world)
    (table,) = world.context.choose_tables(None)
    shown = world.context.publisher.shown_locations(table, [date.fromisoformat(FIRST)])
    catalog(world, FIRST_IS_OLD)
    lease_ends(world)
    hours_pass(world, A_LONG_TIME)
    world.glue.publish(table, shown)
    collect(world)
    assert len(world.ids()) == 8
    assert [item.kind for item in run_doctor(world.context).findings] == ["catalog"]
    report = catalog(world, FIRST_IS_OLD)
    assert (report.expired, report.withdrawn) == ((), (date.fromisoformat(FIRST),))
    assert len(world.ids()) == 4
    assert collect(world) == {}, "the lease of its readers begins anew"
    lease_ends(world)
    assert "expired" in collect(world)


def test_late_rows_of_a_day_that_is_too_old_are_set_aside_and_counted(world: World) -> None:
    two_days(world)
    catalog(world, FIRST_IS_OLD)
    rows = some_rows(2, utc(f"{FIRST}T12:00")) + some_rows(3, utc(f"{SECOND}T12:00"))
    world.drop(rows)
    report = world.stream(FIRST_IS_OLD)
    assert (report.rows_out, report.quarantined) == (3, 2)
    with world.context.database.begin() as connection:
        reasons = connection.exec_driver_sql("SELECT reason, line_count FROM prism_quarantine").all()
    assert [tuple(row) for row in reasons] == [("too_old", 2)]
    assert check(world, ROWS_BALANCE, FIRST_IS_OLD).passed


def test_a_day_waits_for_objects_that_a_batch_claimed_before_its_rows_were_too_old(world: World) -> None:
    """Their rows of the day are accepted at each attempt."""
    _, second = two_days(world)
    world.drop(some_rows(2, utc(f"{FIRST}T12:00")))
    world.discover(FIRST_IS_OLD)
    plan = start_batch(world.context, None)
    assert plan is not None
    report = catalog(world, FIRST_IS_OLD)
    assert report.expired == ()
    assert [item.reason for item in report.waiting] == [
        "is not expired: 1 staging object that may have rows of it is not converted yet"
    ]
    assert (
        world.status(FIRST, FIRST_IS_OLD)
        .findings[0]
        .says.startswith("waits for the end of its retention: 1 staging object")
    )
    release_batch(world.context, plan)
    assert run_stream(world.context, now=utc(FIRST_IS_OLD)).rows_out == 2
    report = catalog(world, FIRST_IS_OLD)
    assert [item.reason for item in report.waiting] == ["is not expired: objects that came late are not merged yet"]
    assert len(world.ids()) == 10
    world.merge(FIRST_IS_OLD, everything=True)
    assert catalog(world, FIRST_IS_OLD).expired == (date.fromisoformat(FIRST),)
    assert world.ids() == second
    assert is_sound(world)


def test_no_day_expires_by_a_clock_that_is_ahead_of_the_database(world: World) -> None:
    now = datetime.now(timezone.utc)
    today, yesterday = f"{now:%Y-%m-%dT%H:%M}", f"{now - timedelta(days=1):%Y-%m-%d}"
    world.apply(KEPT)
    arrive(world, yesterday, today)
    for _ in range(2):
        world.catalog(today)
        world.merge(today, everything=True)
    assert world.status(yesterday, today).state == "switched"
    assert catalog(world, "2999-01-01T00:00").expired == ()
    assert len(world.ids()) == 4


def test_nothing_is_added_to_an_expired_day_whoever_tries(world: World) -> None:
    two_days(world)
    catalog(world, FIRST_IS_OLD)
    with (
        pytest.raises(Exception, match="is expired, and nothing is added to it"),
        world.context.database.begin() as connection,
    ):
        connection.exec_driver_sql("UPDATE prism_partitions SET last_object_id = last_object_id + 1")


def planned(world: World, text: str, now: str, *, dry_run: bool) -> ApplyPlan:
    (world.settings.tables_dir / "events.yaml").write_text(text)
    return run_apply(world.context, world.settings.tables_dir, utc(now), dry_run=dry_run)


def test_a_plan_says_how_many_days_and_rows_expire_and_a_run_ends_a_few(world: World) -> None:
    two_days(world, a_table(merge="{interval: 0}"))
    plan = planned(world, KEPT, BOTH_ARE_OLD, dry_run=True)
    assert plan.lines == (
        "keep days of log.events for 3 days",
        "expire 2 days of log.events before 2026-03-03, with 8 rows, at most 31 days in each catalog run "
        "(PRISM_EXPIRE_MAX_DAYS)",
    )
    assert not catalog(world, BOTH_ARE_OLD).expired
    assert planned(world, KEPT, BOTH_ARE_OLD, dry_run=False).lines == plan.lines
    careful = dataclasses.replace(world.context, settings=world.settings.model_copy(update={"expire_max_days": 1}))
    slow = dataclasses.replace(world, context=careful)
    steps = [str(step) for step in preview(careful, now=utc(BOTH_ARE_OLD))]
    assert "log.events: leave 1 more day to the next runs, as PRISM_EXPIRE_MAX_DAYS is 1" in steps
    assert catalog(slow, BOTH_ARE_OLD).expired == (date.fromisoformat(FIRST),)
    rows = arrive(slow, SECOND, BOTH_ARE_OLD)
    world.catalog("2026-03-05T12:00")
    assert set(rows) <= set(world.ids()), "what is left to later runs is taken in as before"
    world.merge(BOTH_ARE_OLD, everything=True)
    assert catalog(slow, BOTH_ARE_OLD).expired == (date.fromisoformat(SECOND),)


def test_what_is_expired_stays_so_when_days_are_kept_for_longer(world: World) -> None:
    _, second = two_days(world)
    catalog(world, FIRST_IS_OLD)
    assert planned(world, a_table(merge="{interval: 0}"), FIRST_IS_OLD, dry_run=False).lines == (
        "keep all unexpired days of log.events",
    )
    assert not catalog(world, "2026-04-01T00:00").expired
    assert world.ids() == second
    arrive(world, FIRST, FIRST_IS_OLD)
    assert world.ids() == second


def test_an_iceberg_table_removes_expired_days_in_one_commit(world: World) -> None:
    _, second = two_days(world, KEPT + "iceberg: true\n")
    world.iceberg(BOTH_SWITCHED)
    assert len(world.iceberg_ids()) == 8
    catalog(world, FIRST_IS_OLD)
    before = len(world.iceberg_table().history())
    (report,) = world.iceberg(FIRST_IS_OLD).tables
    assert world.iceberg_ids() == second
    assert len(world.iceberg_table().history()) == before + 1
    assert report.commit is not None
    assert (report.commit.files_in, report.commit.rows_out) == (0, 4)
    again = world.iceberg(FIRST_IS_OLD)
    assert not again.changed
    catalog(world, BOTH_ARE_OLD)
    world.iceberg(BOTH_ARE_OLD)
    assert world.iceberg_ids() == []


def keeping_quarantine(world: World, days: int) -> World:
    settings = world.settings.model_copy(update={"quarantine_days": days})
    return dataclasses.replace(world, context=dataclasses.replace(world.context, settings=settings))


def test_quarantined_lines_go_after_their_time_and_stay_counted(world: World) -> None:
    world.apply(a_table(merge="{interval: 0}"))
    arrive(world, FIRST, broken=3)
    arrive(world, SECOND, broken=1)
    hours_pass(world, A_LONG_TIME)
    age = (datetime.now(timezone.utc).date() - date.fromisoformat(FIRST)).days
    assert collect(keeping_quarantine(world, age)) == {}
    assert collect(keeping_quarantine(world, age - 1)) == {"expired": 1}
    assert [key for key in keys(world, "/quarantine/") if FIRST in key] == []
    with pytest.raises(WrongUse, match="or they were kept for their 30 days"):
        quarantined_lines(world.context, 1)
    assert b"".join(quarantined_lines(world.context, 2))
    assert check(world, ROWS_BALANCE, f"{FIRST}T13:00").passed
    assert is_sound(world)


def expire_at(world: World, monkeypatch: pytest.MonkeyPatch, module: ModuleType, point: str) -> None:
    """Expires the first day by a catalog run, once, when a stage reaches a failpoint of its module."""

    def reach(name: str) -> None:
        if name == point:
            monkeypatch.undo()
            assert catalog(world, FIRST_IS_OLD).expired == (date.fromisoformat(FIRST),)

    monkeypatch.setattr(module, "failpoint", reach)


@pytest.mark.parametrize("point", ["rebuild.after_begin", "rebuild.after_convert", "rebuild.before_commit"])
def test_a_day_that_expires_while_it_is_rebuilt_stays_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    _, second = two_days(world)
    world.apply(a_table(merge="{interval: 0}", columns=["{name: extra, type: bigint}"]) + "retention_days: 3\n")
    expire_at(world, monkeypatch, day_rebuild, point)
    days = date.fromisoformat(FIRST), date.fromisoformat(SECOND)
    report = run_rebuild(world.context, "log.events", since=days[0], day=days[1], now=utc(FIRST_IS_OLD))
    (error,) = report.errors
    assert error.startswith(f"log.events {FIRST}: it is not rebuilt: it is expired: older than its table's retention")
    assert [(done.date, done.totals is not None) for done in report.days] == [(days[1], True)]
    catalog(world, FIRST_IS_OLD)
    assert world.ids() == second
    assert is_sound(world)


@pytest.mark.parametrize("point", ["erase.after_search", "erase.before_commit"])
def test_a_day_that_expires_during_an_erasure_leaves_the_other_days_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    first, second = two_days(world)
    expire_at(world, monkeypatch, row_erasure, point)
    report = run_erase(world.context, "log.events", f"id in ({first[0]}, {second[0]})", rows=2)
    assert report.errors == ()
    (erasure,) = report.erasures
    assert (erasure.state, erasure.objects_rewritten, erasure.rows_erased) == ("publishing", 1, 1)
    catalog(world, FIRST_IS_OLD)
    assert world.ids() == second[1:]
    assert is_sound(world)


def test_a_day_that_expires_while_it_is_repaired_needs_no_lengths_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = two_days(world)
    arrive(world, FIRST, BOTH_SWITCHED)
    world.merge(BOTH_SWITCHED, everything=True)  # which no catalog shows before the day ends
    as_of_another_version(world)
    world.context.stores.delete("lake", small_keys(world))
    expire_at(world, monkeypatch, repair_commit, "repair.before_commit")
    report = run_repair(world.context, deep=True)
    assert report.errors == ()
    assert report.repaired > 0
    catalog(world, FIRST_IS_OLD)
    assert world.ids() == second
    assert is_sound(world)
