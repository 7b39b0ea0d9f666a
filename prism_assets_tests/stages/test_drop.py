"""Dropped tables: removed and kept parts, and refusals of a drop."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest

from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.domain.findings import Acts
from prism_assets.domain.tables.drops import DropState
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.tables import drops
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.drop.report import DropReport, DropStatus
from prism_assets.stages.drop.run import continue_drops, plan_drop, run_drop
from prism_assets.stages.erase.report import read_dropped_erasures
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.findings.registry import find_work, read_findings
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.iceberg.pending import find_iceberg_work
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.requests import Requests, a_join_table, some_changes
from prism_assets_tests.stages.aging import hours_pass, keys
from prism_assets_tests.stages.catalogs import calls_are_over
from prism_assets_tests.stages.test_erase import later
from prism_assets_tests.stages.test_symlinks import without_symlinks
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON, AFTER = f"{DAY}T12:00", "2026-03-02T00:10"
RETIRED, LATER = utc("2026-03-03T00:00"), utc("2026-04-03T00:00")
EVENTS = "log.events"
KEPT = {"prism_drops", "prism_gc_log", "prism_erasures"}


def a_retired_table(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if "streams:" not in line and "url:" not in line) + "retired: true\n"


def retire(world: World, name: str = "events") -> None:
    """Retires a table, and removes its file."""
    path = world.settings.tables_dir / f"{name}.yaml"
    path.write_text(a_retired_table(path.read_text()))
    world.apply(now="2026-03-03T00:00")
    path.unlink()


def all_at_once(world: World) -> World:
    settings = world.settings.model_copy(update={"gc_max_fraction": 1.0})
    return dataclasses.replace(world, context=dataclasses.replace(world.context, settings=settings))


def a_life(world: World, text: str) -> list[int]:
    """A switched day with quarantined lines and late rows, and an open one."""
    world.apply(text)
    rows = some_rows(6, utc(NOON))
    world.drop(rows, body=as_lines(rows) + b"broken\n")
    world.stream(NOON)
    world.catalog(NOON)
    for _ in range(2):
        world.catalog(AFTER)
        world.merge(AFTER)
    late = some_rows(2, utc(NOON)) + some_rows(1, utc("2026-03-02T00:05"))
    world.drop(late)
    world.stream(AFTER)
    world.catalog(AFTER)
    return [row["id"] for row in (*rows, *late)]


def drop(world: World, name: str = EVENTS, confirm: str | None = EVENTS) -> DropReport:
    return run_drop(world.context, name, confirm=confirm, now=LATER)


def lease_ends(world: World) -> None:
    """As if the last catalog had forgotten all dropped tables long ago, and objects were old."""
    hours_pass(world, 1_000)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_drops SET hidden_time = hidden_time - interval '1000 hours'")


def go_on(world: World) -> DropStatus:
    """`prism gc` of the clock of the database."""
    report = continue_drops(world.context)
    assert report.errors == ()
    (status,) = report.drops
    return status


def recorded(world: World, table_id: int = 1) -> dict[str, int]:
    """Returns the rows about a table, its days or its staging objects, by table of the database."""
    found: dict[str, int] = {}
    with world.context.database.begin() as connection:
        names = connection.exec_driver_sql(
            "SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_name) "
            "WHERE column_name = 'prism_table_id' AND table_type = 'BASE TABLE'"
        ).scalars()
        for name in names.all():
            count = f"SELECT count(*) FROM {name} WHERE prism_table_id = {table_id}"
            found[name] = connection.exec_driver_sql(count).scalar_one()
    return {name: count for name, count in found.items() if count}


def everything_recorded(world: World) -> dict[str, int]:
    """Returns the number of rows of each nonempty table of the database."""
    with world.context.database.begin() as connection:
        names = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'prism%%'").scalars()
        counts = {name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() for name in names.all()}
    return {name: count for name, count in counts.items() if count}


def is_shown(world: World, table: str = EVENTS) -> bool:
    try:
        world.reader().table(table)
    except WrongUse:
        return False
    return True


def test_a_table_goes_out_of_catalogs_then_out_of_the_lake_and_then_out_of_the_records(world: World) -> None:
    world = all_at_once(world)
    a_life(world, a_table(merge="{interval: 0}", iceberg="true") + "symlink: true\n")
    world.iceberg(AFTER)
    retire(world)
    staged = sorted(path.name for path in (world.root / "buckets" / "staging").rglob("*.gz"))
    assert {key.split("/")[1] for key in keys(world)} == {
        "live", "delayed", "merged", "symlink", "quarantine", "iceberg",
    }  # fmt: skip
    before = keys(world)
    (status,) = drop(world).drops
    assert (status.state, status.objects.objects) == ("deleting", len(before))
    assert not any(is_shown(world, name) for name in (EVENTS, "log_symlink.events"))
    assert keys(world) == before, "readers may be at it"
    assert go_on(world).state == "deleting"
    assert keys(world) == before
    assert world.context.choose_tables(None) == []
    lease_ends(world)
    assert go_on(world).is_over
    assert keys(world) == []
    assert set(recorded(world)) == KEPT - {"prism_erasures"}
    assert set(everything_recorded(world)) == {
        "prism_drops", "prism_gc_log", "prism_installation", "prism_lake_version", "prism_stream_batches",
    }  # fmt: skip
    assert sorted(path.name for path in (world.root / "buckets" / "staging").rglob("*.gz")) == staged
    assert continue_drops(world.context) == DropReport()
    (status,) = drop(world, confirm=None).drops
    assert str(status).startswith("log.events was dropped at ")
    assert run_doctor(world.context, deep=True).is_clean


def test_a_plan_says_what_goes_and_changes_nothing(world: World) -> None:
    a_life(world, a_table(merge="{interval: 0}"))
    retire(world)
    before, rows = keys(world), everything_recorded(world)
    (plan,) = plan_drop(world.context, EVENTS, LATER)
    assert plan.obstacles == ()
    assert (plan.sum.objects, plan.catalogs) == (len(before), ("the catalog, as log.events", "DuckLake"))
    assert plan.sentences[-1] == (
        "log.events: what is recorded of 2 days, 3 small and 1 merged object; 2 staging objects are forgotten, and "
        "stay where they are"
    )
    assert (keys(world), everything_recorded(world)) == (before, rows)


def test_what_is_not_retired_for_long_or_still_has_a_file_is_refused(world: World) -> None:
    a_life(world, a_table(merge="{interval: 0}"))

    def refusal(now: datetime = LATER, confirm: str | None = EVENTS) -> str:
        with pytest.raises(WrongUse) as raised:
            run_drop(world.context, EVENTS, confirm=confirm, now=now)
        return str(raised.value)

    assert refusal().startswith("log.events is not retired: say `retired: true` in its file")
    path = world.settings.tables_dir / "events.yaml"
    path.write_text(a_retired_table(path.read_text()))
    world.apply(now="2026-03-03T00:00")
    assert "is still defined in " in refusal()
    path.unlink()
    said = refusal(RETIRED + timedelta(days=29))
    assert said.startswith("log.events is retired since 2026-03-03 00:00Z, and may be dropped from 2026-04-02 00:00Z")
    whole = f"{len(keys(world))} objects, 0.0 MB"
    assert refusal(confirm=None) == (
        f"log.events goes for good, with {whole}: if that is meant, repeat with --confirm log.events; nothing was "
        "dropped"
    )
    assert "and not log.event;" in refusal(confirm="log.event")
    assert is_shown(world)
    assert drop(world).drops


def test_what_waits_to_be_converted_is_converted_first(world: World) -> None:
    world.apply(a_table())
    for _ in range(2):
        world.stream(NOON)
        world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    retire(world)
    with pytest.raises(WrongUse, match="has 1 staging object that is not converted yet: run `prism stream`"):
        drop(world)
    world.stream(NOON)
    assert drop(world).changed


def test_an_erasure_is_proved_first(world: World) -> None:
    a_life(world, a_table(merge="{interval: 0}"))
    run_erase(world.context, EVENTS, "id = -1")
    retire(world)
    with pytest.raises(WrongUse, match="has 1 erasure that is not proved yet"):
        drop(world)


def test_what_was_proved_of_a_table_stays_known_and_a_plan_says_that_it_binds_no_other(world: World) -> None:
    world = all_at_once(world)
    ids = a_life(world, a_table(merge="{interval: 0}"))
    run_erase(world.context, EVENTS, f"id = {ids[0]}", rows=1)
    world.catalog(AFTER)
    assert continue_erasures(world.context, now=later(), forced=True).erasures[0].state == "proved"
    assert read_dropped_erasures(world.context) == ()
    retire(world)
    (plan,) = plan_drop(world.context, EVENTS, LATER)
    assert plan.sentences[-1] == (
        "log.events: 1 erasure, whose proofs stay, but which bind no table that reads the same staging objects: 1 of "
        "these hold their rows, or may; `prism erase --sources` lists them as long as the table is there"
    )
    drop(world)
    lease_ends(world)
    assert go_on(world).is_over
    (status,) = read_dropped_erasures(world.context)
    assert (status.table, status.dropped, status.state) == (EVENTS, True, "proved")
    assert str(status).startswith("erasure 1 of log.events, which was dropped, is proved: 1 row out of")


def test_a_merge_that_was_scheduled_by_who_began_before_holds_nothing_back(world: World) -> None:
    a_life(world, a_table(merge="{interval: 0}"))
    retire(world)
    assert drop(world).changed
    with world.context.database.begin() as connection:
        merge_jobs.schedule(connection, [1], LATER)
    world = all_at_once(world)
    lease_ends(world)
    while go_on(world).state != DropState.DROPPED.value:
        pass


def test_one_run_deletes_a_part_of_what_lay_there_at_first(world: World) -> None:
    world.apply(a_table())
    for _ in range(8):
        world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    retire(world)
    settings = world.settings.model_copy(update={"gc_max_fraction": 0.25})
    world = dataclasses.replace(world, context=dataclasses.replace(world.context, settings=settings))
    drop(world)
    lease_ends(world)
    left = []
    for _ in range(4):
        status = go_on(world)
        left.append((len(keys(world)), status.state))
    assert left == [(6, "deleting"), (4, "deleting"), (2, "deleting"), (0, "dropped")]


def test_young_objects_and_those_that_are_not_of_prism_stay(world: World) -> None:
    world = all_at_once(world)
    a_life(world, a_table(merge="{interval: 0}"))
    retire(world)
    drop(world)
    stray = f"{keys(world)[0].split('/')[0]}/notes.txt"
    lease_ends(world)
    (table,) = world.context.choose_with_dropped(None)
    world.context.stores.put("lake", f"{world.context.lake.keys(table).iceberg_prefix}metadata/x.json", b"{}")
    world.context.stores.put("lake", stray, b"mine")
    assert str(go_on(world)).endswith("on, 1 object, 0.0 MB are left")
    hours_pass(world, 100)
    report = continue_drops(world.context)
    assert (report.foreign, report.drops[0].is_over) == ((stray,), True)
    assert keys(world) == [stray]


def test_nothing_is_deleted_while_a_catalog_may_show_the_table(world: World) -> None:
    world = all_at_once(world)
    a_life(world, a_table(merge="{interval: 0}") + "symlink: true\n")
    retire(world)
    sick = without_symlinks(world)
    report = drop(sick)
    assert (report.drops[0].state, len(report.problems)) == ("hiding", 1)
    assert (is_shown(world), is_shown(world, "log_symlink.events")) == (False, True)
    lease_ends(world)
    assert continue_drops(sick.context).drops[0].state == "hiding"
    assert keys(world)
    calls_are_over(world)
    assert go_on(world).state == "deleting"
    assert not is_shown(world, "log_symlink.events")


def test_every_other_stage_passes_a_dropped_table_over(world: World) -> None:
    a_life(world, a_table(merge="{interval: 0}", iceberg="true"))
    world.iceberg(AFTER)
    retire(world)
    drop(world)
    lease_ends(world)
    world.context.stores.delete("lake", keys(world, "/live/"))
    assert run_repair(world.context).partitions == ()
    assert run_doctor(world.context, deep=True).is_clean
    assert run_gc(world.context).tables == ()
    assert find_work(world.context, "catalog", now=LATER) == []
    assert find_iceberg_work(world.context, now=LATER) == []
    assert not run_catalog(world.context, now=LATER).changed
    assert run_discover(world.context, now=LATER).scans == ()
    with pytest.raises(WrongUse, match=r"log\.events is being dropped: `prism status` says how far that is"):
        run_erase(world.context, EVENTS, "id = 1")
    (status,) = read_status(world.context, now=LATER)
    (left,) = read_findings(world.context, None, now=LATER)
    assert status.findings == (left,)
    assert str(left).startswith("log.events: is being dropped since ")
    assert left.acts is Acts.TIME


def test_its_name_is_free_afterwards_and_its_folder_and_its_id_are_not(world: World) -> None:
    world = all_at_once(world)
    a_life(world, a_table(merge="{interval: 0}"))
    retire(world)
    drop(world)
    with pytest.raises(DefinitionError, match=r"events.yaml:2: table: log.events is being dropped; remove it here, or"):
        world.apply(a_table())
    lease_ends(world)
    go_on(world)
    world.apply(a_table(merge="{interval: 0}"))
    world.drop(some_rows(2, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    assert len(world.ids()) == 11, "a new stream over the same logs reads them all"
    assert {key.split(".", 1)[1].split("/")[0] for key in keys(world)} == {"log.events_2"}
    assert recorded(world, 1).keys() == {"prism_drops", "prism_gc_log"}
    assert run_doctor(world.context, deep=True).is_clean
    with pytest.raises(WrongUse, match="is not retired"):
        drop(world)


def test_objects_of_a_stream_that_feeds_another_table_now_are_not_read_again(world: World) -> None:
    world = all_at_once(world)
    a_life(world, a_table(merge="{interval: 0}"))
    retire(world)
    world.apply(a_table("log.others").replace("staging/others/", "staging/events/"))
    drop(world)
    lease_ends(world)
    go_on(world)
    world.drop(some_rows(3, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    assert len(world.ids("log.others")) == 3
    assert run_doctor(world.context, deep=True).is_clean


def test_a_stream_with_objects_of_another_table_is_that_ones_again(world: World) -> None:
    world = all_at_once(world)
    world.apply(a_table("log.others").replace("staging/others/", "staging/events/"))
    world.drop(some_rows(3, utc(NOON)))
    world.stream(NOON)
    world.apply(a_table(), a_table("log.others"))
    world.drop(some_rows(2, utc(NOON)))
    world.drop(some_rows(1, utc(NOON)), stream="others")
    world.stream(NOON)
    world.catalog(NOON)
    retire(world)
    drop(world)
    lease_ends(world)
    assert go_on(world).is_over
    world.catalog(NOON)
    assert len(world.ids("log.others")) == 4
    assert run_doctor(world.context, deep=True).is_clean


def test_both_tables_of_a_join_table_go(world: World) -> None:
    world = all_at_once(world)
    world.apply(a_join_table())
    requests = Requests(world)
    requests.arrive(some_changes(7, 30, NOON, requests=6, hours=3), NOON)
    requests.show(NOON)
    name = str(world.context.choose_tables(None)[0].name)
    (path,) = world.settings.tables_dir.iterdir()
    retire(world, path.stem)
    with pytest.raises(WrongUse, match="logs the changes of a join table, and goes with it: drop that"):
        drop(world, f"{name}_changes")
    assert {key.split("/")[1] for key in keys(world)} > {"live", "records"}
    report = drop(world, name, name)
    assert [status.table for status in report.drops] == [f"{name}_changes", name]
    lease_ends(world)
    report = continue_drops(world.context)
    assert [status.is_over for status in report.drops] == [True, True], report
    assert keys(world) == []
    assert set(everything_recorded(world)) == {
        "prism_drops", "prism_gc_log", "prism_installation", "prism_lake_version", "prism_stream_batches",
    }  # fmt: skip


def test_whatever_refers_to_a_table_is_forgotten_with_it(world: World) -> None:
    """A later table of the database with references to tables must be listed here."""
    world.apply(a_table())
    with world.context.database.begin() as connection:
        references = [
            tuple(row)
            for row in connection.exec_driver_sql(
                "SELECT CAST(CAST(conrelid AS regclass) AS text), CAST(CAST(confrelid AS regclass) AS text) "
                "FROM pg_constraint WHERE contype = 'f'"
            )
        ]
    of_tables = {"prism_tables"}
    while more := {name for name, other in references if other in of_tables} - of_tables:
        of_tables |= more
    statements = (*drops._FORGET_DAYS, *drops._FORGET_OBJECTS, *drops._FORGET_TABLE)
    assert {name for name in of_tables if not any(f"DELETE FROM {name} " in item for item in statements)} == set()


def test_a_second_call_goes_on_with_the_drop_that_was_begun(world: World) -> None:
    a_life(world, a_table(merge="{interval: 0}"))
    retire(world)
    first = drop(world)
    again = drop(world, confirm=None)
    assert [item.begin_time for item in first.drops] == [item.begin_time for item in again.drops]
    assert (first.changed, again.changed) == (True, False)
