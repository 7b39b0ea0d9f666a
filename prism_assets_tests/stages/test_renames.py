"""A renamed column on its way to its new name: no reader sees null for a stored value, neither by name nor by id."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.domain.columns.transitions import RenameState
from prism_assets.kernels.field_ids import COPY_IDS
from prism_assets.metadata.days import partitions, retention
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.tables import tables
from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.merge.report import MergeReport
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.findings import says
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass
from prism_assets_tests.stages.seen_columns import (
    COLOR,
    DAY,
    HUE,
    MERGE,
    NIGHT,
    NOON,
    SIZE,
    a_switched_day,
    arrive,
    by_name_alone,
    columns_of,
    each_once,
    events,
    look,
    merged,
    publish,
    refusal,
)
from prism_assets_tests.world import World

NEXT = "2026-03-02T09:00"
RENAMED, LATER = "2026-03-02T10:00", "2026-03-02T11:00"
SECOND_NIGHT = "2026-03-03T00:30"
SETTLED, SHOWN = "2026-03-03T01:00", "2026-03-03T05:01"
ALONE, ENDED = "2026-04-02T06:00", "2026-04-02T11:00"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


@pytest.fixture
def rows(world: World) -> list[dict[str, Any]]:
    """Rows of a day merged and switched before the rename, and of an open day."""
    found = [*a_switched_day(world), *arrive(world, NEXT, at=NEXT)]
    publish(world, NEXT)
    look(world, found, "color", "size")
    assert {item.state for item in read_status(world.context, now=utc(NEXT))[0].partitions} == {"switched", "live"}
    return found


def rename(world: World) -> None:
    assert world.apply(events(HUE, SIZE), now=RENAMED).lines == (
        "rename column color of log.events to hue: Iceberg, DuckLake, `prism erase` and table files have the new name "
        "at once; older objects are rewritten, and until then readers of Glue, `prism query` among them, see color, "
        "then both names for 30 days, then hue alone",
    )
    world.iceberg(RENAMED)


def state(world: World) -> RenameState | None:
    (table,) = world.context.choose_tables(["log.events"])
    found = table.column("hue").rename
    return found.state if found else None


def said(world: World, now: str) -> str:
    (status,) = read_status(world.context, now=utc(now))
    (found,) = says(status.findings, "column_transition")
    assert any(found in str(step) for step in preview(world.context, now=utc(now)))
    return found.partition(": ")[2]


def see_former(world: World, rows: Sequence[dict[str, Any]]) -> None:
    look(world, rows, "color", "size", color="hue")


def see_both(world: World, rows: Sequence[dict[str, Any]]) -> None:
    look(world, [row | {"hue": row["color"]} for row in rows], "hue", "size", "color", color="")


def see_new(world: World, rows: Sequence[dict[str, Any]]) -> None:
    look(world, [row | {"hue": row["color"]} for row in rows], "hue", "size")


def plans(report: MergeReport) -> list[str]:
    assert report.errors == ()
    return [item.plan.partition(": ")[2] for item in report.merged if item.sizes]


def test_a_reader_by_name_finds_every_value_through_a_rename(world: World, rows: list[dict[str, Any]]) -> None:
    rename(world)
    assert {value for _, value in by_name_alone(world, ["id", "hue"])} == {None}, "what Glue must not show yet"
    assert said(world, RENAMED) == (
        "older objects are left: 1 merged object to be rewritten, 1 object of open days, of 2026-03-01 to 2026-03-02"
    )
    publish(world, RENAMED)
    assert plans(world.merge(RENAMED)) == ["write (0, 2] again"]
    see_former(world, rows)
    assert "1 day to be published" in said(world, RENAMED)
    publish(world, RENAMED)
    see_former(world, rows)
    assert plans(world.merge(RENAMED)) == []
    (item,) = world.partition("2026-03-01").objects
    rewritten = item.url.removeprefix("s3://lake/")
    assert columns_of(world, rewritten) == {"time": 1, "id": 2, "hue": 3, "size": 4, "color": COPY_IDS[3]}
    rows += [*arrive(world, LATER, at=NEXT), *arrive(world, LATER)]
    publish(world, LATER)
    see_former(world, rows)
    world.merge(LATER, everything=True)
    world.catalog(LATER)
    assert said(world, LATER).endswith("1 object of open days, of 2026-03-02")
    world.catalog(SECOND_NIGHT)
    world.merge(SECOND_NIGHT, everything=True)
    publish(world, SECOND_NIGHT)
    see_former(world, rows)
    assert state(world) is RenameState.REWRITING
    publish(world, SETTLED)
    assert state(world) is RenameState.DRAINING
    assert said(world, SETTLED) == "readers may use older objects until 2026-03-03 05:00Z"
    see_former(world, rows)
    publish(world, SHOWN)
    assert state(world) is RenameState.BOTH_SHOWN
    see_both(world, rows)
    rows += arrive(world, SHOWN, at=NEXT)
    world.merge(SHOWN, everything=True)
    publish(world, SHOWN)
    see_both(world, rows)
    assert said(world, SHOWN) == "Glue shows both names until 2026-04-02 05:01Z"
    publish(world, ALONE)
    assert state(world) is RenameState.DRAINING_FORMER
    see_new(world, rows)
    world.catalog(ENDED)
    assert state(world) is None
    rows += arrive(world, ENDED, at=ENDED)
    publish(world, ENDED)
    see_new(world, rows)
    assert not world.catalog(ENDED).changed
    assert plans(world.merge(ENDED)) == []
    (table,) = world.context.choose_tables(["log.events"])
    assert table.version == 6
    hours_pass(world, 100)
    assert deleted(world), "none of what readers need"
    see_new(world, rows)
    assert run_doctor(world.context, deep=True).is_clean


def test_an_object_that_cannot_be_read_is_told_and_keeps_no_other(world: World) -> None:
    big = MERGE.replace("100000", "1")
    world.apply(a_table(columns=[COLOR, SIZE], merge=big))
    arrive(world)
    arrive(world)
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(NIGHT)
    first, second = (item.url.removeprefix("s3://lake/") for item in world.partition(DAY).objects)
    body = world.context.stores.get("lake", first)
    world.context.stores.put("lake", first, b"not Parquet at all"[: len(body)].ljust(len(body)))
    world.apply(a_table(columns=[HUE, SIZE], merge=big), now=RENAMED)
    (problem,) = world.merge(RENAMED).problems
    assert problem.reason.endswith(f"{first}: it is no readable Parquet object")
    assert world.status(DAY, RENAMED).findings[0].says.startswith("its merge goes again at")
    (done,) = world.merge(RENAMED, everything=True).merged
    assert done.plan.endswith("write (1, 2] again")
    world.catalog(RENAMED)
    assert second not in {item.url.removeprefix("s3://lake/") for item in world.partition(DAY).objects}
    assert "1 merged object to be rewritten" in said(world, RENAMED)


def test_a_rebuild_that_was_under_way_takes_no_name_back(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_table(columns=[COLOR, SIZE.replace("bigint", "bigint, source: id")], merge=MERGE, iceberg="true"))
    told: list[str] = []

    def rename_meanwhile(said: str) -> None:
        if not told:
            world.apply(events(HUE, SIZE), now=RENAMED)
        told.append(said)

    context = replace(world.context, progress=rename_meanwhile)
    report = run_rebuild(context, "log.events", day=utc(NOON).date(), now=utc(RENAMED))
    assert told[0].endswith("2 objects converted")
    assert "columns were renamed, widened or replaced meanwhile" in report.errors[0]
    publish(world, RENAMED)
    see_former(world, rows)


def test_another_name_waits_until_readers_know_the_column_by_this_one(world: World, rows: list[dict[str, Any]]) -> None:
    rename(world)
    assert refusal(world, events(HUE.replace("name: hue", "name: tint").replace("color", "hue"), SIZE)) == (
        "hue cannot become tint yet: it is still known as color to readers of Glue, as `prism status --table "
        "log.events` says; rename it afterwards"
    )
    assert "color is the name of hue in objects and Glue" in refusal(world, events(HUE, SIZE, COLOR))
    back = events("{name: color, type: string, length: 20, was: hue, source: color}", SIZE)
    assert world.apply(back, now=RENAMED).lines == ("rename column hue of log.events to color",)
    publish(world, RENAMED)
    look(world, rows, "color", "size")
    assert "hue was another column" not in str(world.apply(events(HUE, SIZE), now=LATER).lines), "its own name is free"
    told = refusal(world, events(HUE, "{name: color, type: bigint, was: size}"))
    assert told == "color is the name of hue in objects and Glue; choose another"


def test_a_column_that_was_renamed_by_an_older_version_begins_with_the_next_apply(world: World) -> None:
    world.apply(a_table(columns=[COLOR, SIZE], merge=MERGE))
    rows = arrive(world)
    world.apply(a_table(columns=[HUE, SIZE], merge=MERGE), now=NOON)
    with world.context.database.begin() as connection:  # what that version stored
        connection.exec_driver_sql(
            "UPDATE prism_table_definitions SET definition = jsonb_set(definition #- '{columns,2,rename}', "
            "'{columns,2,stored_as}', '\"color\"') WHERE version = 2"
        )
    rows += arrive(world)
    world.catalog(NOON)
    assert world.apply(now=RENAMED).lines == (
        "let readers of Glue find column hue of log.events by this name: Iceberg, DuckLake, `prism erase` and table "
        "files have the new name at once; older objects are rewritten, and until then readers of Glue, `prism query` "
        "among them, see color, then both names for 30 days, then hue alone",
    )
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    for now in (NIGHT, SETTLED, SHOWN):
        world.catalog(now)
    assert state(world) is RenameState.BOTH_SHOWN
    wanted = {row["id"]: (row["color"], row["color"]) for row in rows}
    assert each_once(world.query("SELECT id, hue, color FROM log.events")) == wanted


def test_a_name_is_held_by_what_may_have_been_written_while_a_column_had_it(world: World) -> None:
    def table(*columns: str) -> str:
        return a_table(columns=columns, merge=MERGE)

    world.apply(table(COLOR, SIZE))
    rows = [*arrive(world), *arrive(world)]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    back, new = COLOR.replace("}", ", was: hue}"), COLOR.replace("color", "hue")
    held = (
        "hue was another column, whose values readers of Glue would take for those of the new one: objects of "
        f"{DAY} may have it under that name; choose another name, or rebuild them: "
        f"`prism rebuild log.events --date {DAY}` when the days are closed, and `prism catalog`"
    )
    world.apply(table(HUE, SIZE), now=RENAMED)
    world.apply(table(back, SIZE), now=RENAMED)
    assert refusal(world, table(back, SIZE, new)) == held, "a merge under the name may still be in flight"
    world.apply(table(HUE, SIZE), now=RENAMED)
    assert plans(world.merge(RENAMED)) == ["write (0, 2] again"]
    world.catalog(RENAMED)
    world.apply(table(back, SIZE), now=RENAMED)
    assert refusal(world, table(back, SIZE, new)) == held
    assert refusal(world, table(back, "{name: hue, type: bigint, was: size}")) == held
    with world.context.database.begin() as connection:  # what a merge of before takes in that goes on beside an apply
        connection.exec_driver_sql("UPDATE prism_small_objects SET definition_version = 5")
    assert refusal(world, table(back, SIZE, new)) == held
    world.apply(table(SIZE), now=RENAMED)
    assert refusal(world, table(SIZE, new)) == held
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(RENAMED)).errors == ()
    world.catalog(LATER)
    assert world.apply(table(SIZE, new), now=LATER).lines == ("add column hue string to log.events",)
    arrive(world, LATER)
    world.merge(LATER, everything=True)
    world.catalog(LATER)
    assert columns_of(world, merged(world)) == {"time": 1, "id": 2, "size": 4, "hue": 5}
    found = each_once(world.query("SELECT id, hue FROM log.events"))
    assert {found[row["id"]] for row in rows} == {(None,)}


def test_a_column_that_was_renamed_by_an_older_version_waits_while_objects_have_another_of_its_name(
    world: World,
) -> None:
    other = "{name: hue, type: string, length: 20, value: upper(color)}"
    world.apply(a_table(columns=[COLOR, SIZE, other], merge=MERGE))
    rows = arrive(world)
    world.apply(a_table(columns=[COLOR, SIZE], merge=MERGE))
    with world.context.database.begin() as connection:  # what that version did
        (table,) = tables.load_definitions(connection)
        columns = [
            replace(item, name="hue", stored_as="color") if item.name == "color" else item for item in table.columns
        ]
        table = replace(table, columns=tuple(columns), version=table.version + 1)
        tables.save_version(connection, table, utc(NOON))
        tables.save_columns(connection, table, utc(NOON))
    renamed = a_table(columns=[HUE, SIZE], merge=MERGE)
    plan = world.apply(renamed, now=NOON)
    assert (plan.lines, plan.notices) == (
        (),
        (
            "log.events keeps the name color for hue in objects and Glue, as hue was another column: objects of "
            f"{DAY} may have it under that name; to let readers of Glue find hue, rebuild them: `prism "
            f"rebuild log.events --date {DAY}` when the days are closed, and `prism catalog`, and apply again",
        ),
    )
    rows += arrive(world)
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(NIGHT)
    assert columns_of(world, merged(world)) == {"time": 1, "id": 2, "color": 3, "size": 4, "hue": 5}
    wanted = {row["id"]: (row["color"],) for row in rows}
    assert each_once(world.query("SELECT id, color FROM log.events")) == wanted
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(RENAMED)).errors == ()
    world.catalog(RENAMED)
    plan = world.apply(renamed, now=RENAMED)
    assert plan.notices == ()
    assert plan.lines[0].startswith("let readers of Glue find column hue of log.events by this name")
    world.merge(RENAMED)
    world.catalog(RENAMED)
    assert columns_of(world, merged(world)) == {"time": 1, "id": 2, "hue": 3, "size": 4, "color": COPY_IDS[3]}
    assert each_once(world.query("SELECT id, color FROM log.events")) == wanted


def test_a_rebuild_or_a_merge_that_is_first_is_as_good(world: World, rows: list[dict[str, Any]]) -> None:
    rename(world)
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(RENAMED)).errors == ()
    publish(world, RENAMED)
    see_former(world, rows)
    assert plans(world.merge(RENAMED)) == []
    assert said(world, RENAMED).endswith("1 object of open days, of 2026-03-02")


@pytest.mark.parametrize("point", ["write.after_put", "merge.in_commit"])
def test_a_rewriting_that_died_is_done_by_the_next_run(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    rename(world)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=1*raise(InjectedFault)"))
    with suppress(failpoints.InjectedFault):  # what a kernel meets is the failure of its task
        assert world.merge(RENAMED).problems
    monkeypatch.setattr(failpoints, "_POINTS", {})
    publish(world, RENAMED)
    see_former(world, rows)
    world.merge(LATER, everything=True)
    publish(world, LATER)
    see_former(world, rows)
    assert "merged object" not in said(world, LATER)


def test_readers_look_back_from_when_glue_shows_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(a_table(columns=[COLOR], merge=MERGE))
    arrive(world)
    world.catalog(NOON)
    world.apply(a_table(columns=[HUE], merge=MERGE), now=RENAMED)
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    for now in (NIGHT, RENAMED, SETTLED, SHOWN):
        world.catalog(now)
    assert state(world) is RenameState.BOTH_SHOWN
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse("catalog.after_begin=1*raise(InjectedFault)"))
    with suppress(failpoints.InjectedFault):
        run_catalog(world.context, now=utc(ALONE))
    assert state(world) is RenameState.DRAINING_FORMER
    for now in (ENDED, "2026-04-02T14:59"):
        world.catalog(now)
        assert state(world) is RenameState.DRAINING_FORMER
    assert said(world, ENDED) == "readers may use the former name until 2026-04-02 15:00Z"
    world.catalog("2026-04-02T15:01")
    assert state(world) is None


def test_what_landed_without_a_record_is_of_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(a_table(columns=[COLOR], merge=MERGE))
    arrive(world)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse("catalog.after_publish=1*raise(InjectedFault)"))
    with suppress(failpoints.InjectedFault):
        run_catalog(world.context, now=utc(NIGHT))
    monkeypatch.setattr(failpoints, "_POINTS", {})
    world.apply(a_table(columns=[HUE], merge=MERGE), now=RENAMED)
    world.merge(RENAMED, everything=True)
    assert said(world, RENAMED) == (
        "older objects are left: 1 small object to be merged, 1 day to be published, 1 publication not seen to "
        "end, of 2026-03-01"
    )
    (path,) = (world.root / "buckets/lake").rglob("part-*")
    body = path.read_bytes()
    path.unlink()
    for now in (RENAMED, LATER):
        (error,) = run_catalog(world.context, now=utc(now)).errors
        assert "2026-03-01" in error
        assert state(world) is RenameState.REWRITING
    assert "1 day to be published" in said(world, LATER)
    path.write_bytes(body)
    world.catalog(SETTLED)
    world.catalog(SETTLED)
    assert state(world) is RenameState.DRAINING


def test_a_day_that_expires_meanwhile_is_not_rewritten(world: World) -> None:
    world.apply(events(COLOR, SIZE))
    arrive(world)
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(NIGHT)
    world.apply(events(HUE, SIZE), now=RENAMED)
    database = world.context.database
    with ThreadPoolExecutor(1) as thread:
        with database.begin() as connection:
            table = world.context.choose_tables(["log.events"])[0].table_id
            (day,) = partitions.ensure_and_lock(connection, [(table, utc(NOON).date())]).values()
            retention.expire(connection, day)
            merging = thread.submit(world.merge, RENAMED)  # which finds the day as it was
            wait_for_lock(world)
        assert merging.result() == replace(merging.result(), jobs=0, problems=())
    with database.begin() as connection:  # one that was there, whoever made it
        merge_jobs.schedule(connection, [day], utc(RENAMED))
    assert plans(world.merge(RENAMED)) == []
    with database.begin() as connection:
        assert merge_jobs.load_status(connection) == []


def wait_for_lock(world: World) -> None:
    """Until some statement waits for one."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with world.context.database.begin() as connection:
            if connection.exec_driver_sql(waits).scalar_one():
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits for a lock")


@pytest.mark.parametrize("point", ["catalog.in_transition", "catalog.after_define"])
def test_a_step_that_died_is_taken_by_the_next_run(world: World, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    world.apply(a_table(columns=[COLOR], merge=MERGE))
    rows = arrive(world)
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(NIGHT)
    world.apply(a_table(columns=[HUE], merge=MERGE), now=RENAMED)
    world.merge(RENAMED)
    world.catalog(RENAMED)
    wanted = {row["id"]: (row["color"],) for row in rows}
    for now, names in ((LATER, ["color"]), (SETTLED, ["hue", "color"]), (ALONE, ["hue"]), (ENDED, ["hue"])):
        monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=1*raise(InjectedFault)"))
        with suppress(failpoints.InjectedFault):
            run_catalog(world.context, now=utc(now))
        monkeypatch.setattr(failpoints, "_POINTS", {})
        world.catalog(now)
        assert [name for name, _ in world.reader().table("log.events").columns] == ["time", "id", *names]
        assert each_once(by_name_alone(world, ["id", names[0]])) == wanted
    assert state(world) is None


def test_sorted_and_computed_columns_follow(world: World, rows: list[dict[str, Any]]) -> None:
    loud = "{name: loud, type: string, length: 20, value: upper(hue)}"
    merge = MERGE.replace("}", ", sort_by: [time, hue]}")
    world.apply(a_table(columns=[HUE, SIZE, loud], merge=merge, iceberg="true"), now=RENAMED)
    world.merge(RENAMED)
    publish(world, RENAMED)
    more = [row | {"loud": row["color"] and row["color"].upper()} for row in arrive(world, LATER)]
    world.merge(LATER, everything=True)
    publish(world, LATER)
    look(world, [*(row | {"loud": None} for row in rows), *more], "color", "size", "loud", color="hue")
