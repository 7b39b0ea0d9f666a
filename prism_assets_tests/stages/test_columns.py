"""Dropped, renamed, moved and longer columns: the view of each reader at every step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import DefinitionError
from prism_assets.kernels.field_ids import COPY_IDS
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import hours_pass, keys
from prism_assets_tests.stages.engines import PausingEngine, another_worker, expire_leases, rest_is_over
from prism_assets_tests.stages.seen_columns import (
    COLOR,
    DAY,
    EVENING,
    HUE,
    LATER,
    MORNING,
    NIGHT,
    NOON,
    SIZE,
    a_switched_day,
    arrive,
    columns_of,
    events,
    look,
    merged,
    publish,
    refusal,
)
from prism_assets_tests.world import World


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


@pytest.fixture
def rows(world: World) -> list[dict[str, Any]]:
    """Rows of a table with both columns, in two objects of an open day."""
    world.apply(events(COLOR, SIZE))
    found = [*arrive(world), *arrive(world)]
    publish(world, NOON)
    look(world, found, "color", "size")
    return found


def test_a_dropped_column_leaves_every_reader_and_its_objects_are_merged_with_those_without_it(
    world: World, rows: list[dict[str, Any]]
) -> None:
    world.apply(events(SIZE))
    publish(world, NOON)
    look(world, rows, "size")
    rows += arrive(world, LATER)
    publish(world, LATER)
    look(world, rows, "size")
    world.merge(LATER, everything=True)
    publish(world, LATER)
    look(world, rows, "size")
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    assert world.status(DAY, NIGHT).state == "switched"
    look(world, rows, "size")
    assert columns_of(world, merged(world)) == {"time": 1, "id": 2, "color": 3, "size": 4}, "what inputs hold stays"
    late = arrive(world, MORNING)
    world.merge(MORNING, everything=True)
    publish(world, MORNING)
    look(world, [*rows, *late], "size")
    hours_pass(world, 100)
    assert run_doctor(world.context, deep=True).is_clean


@pytest.mark.parametrize("point", ["write.before_put", "write.after_put", "merge.before_commit", "merge.in_commit"])
def test_a_merge_that_died_before_a_drop_is_done_again_behind_it(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    world.catalog(NIGHT)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=1*raise(InjectedFault)"))
    with suppress(failpoints.InjectedFault):  # what a kernel meets is the failure of its task
        assert world.merge(NIGHT, everything=True).problems
    monkeypatch.setattr(failpoints, "_POINTS", {})
    world.apply(events(SIZE))
    expire_leases(world)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    assert world.status(DAY, NIGHT).state == "switched"
    look(world, rows, "size")
    assert run_doctor(world.context, deep=True).is_clean


def test_an_object_that_was_begun_before_a_drop_still_has_the_column_and_no_reader_sees_it(
    world: World, rows: list[dict[str, Any]]
) -> None:
    late = [row | {"color": "red", "size": 7} for row in some_rows(2, utc(NOON))]
    world.drop(late)
    world.discover(NOON)
    start_batch(world.context, None)  # a worker dies with it
    world.apply(events(SIZE))
    expire_leases(world)
    rest_is_over(world)
    world.stream(NOON)
    publish(world, NOON)
    look(world, [*rows, *late], "size")


def test_a_rebuild_frees_the_name_of_a_dropped_column(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(events(SIZE))
    held = (
        "color was another column, whose values readers of Glue would take for those of the new one: objects of "
        f"{DAY} may have it under that name; choose another name, or rebuild them: "
        f"`prism rebuild log.events --date {DAY}` when the days are closed, and `prism catalog`"
    )
    again = events(SIZE, "{name: color, type: integer, source: size}")
    assert refusal(world, again) == held
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    assert refusal(world, again) == held
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(MORNING)).errors == ()
    assert refusal(world, again) == held, "readers are still sent to the older objects"
    publish(world, MORNING)
    look(world, rows, "size")
    assert "color" not in columns_of(world, merged(world))
    assert world.apply(again).lines == ("add column color integer to log.events",)
    for row in rows:
        row["color"] = None
    publish(world, MORNING)
    look(world, rows, "size", "color")
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(EVENING)).errors == ()
    publish(world, EVENING)
    look(world, [row | {"color": row["size"]} for row in rows], "size", "color")
    assert columns_of(world, merged(world))["color"] == 5, "the id of before is never given again"


def test_a_name_is_held_by_objects_that_wait_for_their_conversion(world: World) -> None:
    world.apply(events(COLOR, SIZE))
    world.drop(some_rows(1, utc(NOON)))
    world.discover(NOON)
    start_batch(world.context, None)
    world.apply(events(SIZE))
    assert refusal(world, events(SIZE, COLOR)).endswith(
        "1 staging object is still to be converted with it; choose another name, or run `prism stream` first"
    )


def test_a_table_without_objects_holds_no_name(world: World) -> None:
    world.apply(events(COLOR))
    world.apply(events())
    assert world.apply(events(COLOR)).lines == ("add column color string to log.events",)


def test_a_dropped_column_does_not_evolve_again(world: World) -> None:
    contract = "contract: {new_fields: evolve}\n"
    world.apply(events(COLOR, SIZE) + contract)
    arrive(world)
    world.apply(events(SIZE) + contract)
    arrive(world)
    (table,) = world.context.choose_tables(["log.events"])
    assert [column.name for column in table.columns] == ["time", "id", "size"]


def test_repair_and_erase_go_on_over_objects_of_before_a_drop(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(events(SIZE))
    rows += arrive(world, LATER)
    publish(world, LATER)
    lost, *_ = keys(world, "/live/")
    held = columns_of(world, lost)
    world.context.stores.delete("lake", [lost])
    assert run_repair(world.context).repaired == 1
    assert columns_of(world, lost) == held
    look(world, rows, "size")
    world.catalog(NIGHT)
    gone = [rows.pop(0), rows.pop(-1)]
    erase(world, f"id IN ({gone[0]['id']}, {gone[1]['id']})", rows=2)
    world.catalog(NIGHT)
    look(world, rows, "size")
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    look(world, rows, "size")
    erase(world, f"id = {rows.pop(0)['id']}", rows=1)
    look(world, rows, "size")


def erase(world: World, where: str, rows: int) -> None:
    """Erases rows from open days. The Iceberg table follows after its commit."""
    assert run_erase(world.context, "log.events", where, rows=rows).errors == ()
    world.iceberg(LATER)
    assert continue_erasures(world.context, now=datetime.now(timezone.utc), forced=True).errors == ()
    publish(world, LATER)


def test_a_column_that_an_erasure_names_is_not_dropped(world: World, rows: list[dict[str, Any]]) -> None:
    assert run_erase(world.context, "log.events", "color = 'red'", rows=2).errors == ()
    assert refusal(world, events(SIZE)) == (
        "color is missing, and erasure 1 names it: erased rows would return with late or replayed objects; keep the "
        "column"
    )
    assert world.apply(events(COLOR)).lines[0].startswith("drop column size")


def test_another_order_is_shown_to_every_reader(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(events(SIZE, COLOR))
    publish(world, NOON)
    look(world, rows, "size", "color")
    rows += arrive(world, LATER)
    world.merge(LATER, everything=True)
    publish(world, LATER)
    look(world, rows, "size", "color")


def test_a_renamed_column_has_its_name_for_readers_by_id_and_the_one_of_before_in_glue(
    world: World, rows: list[dict[str, Any]]
) -> None:
    assert world.apply(events(HUE, SIZE)).lines == (
        "rename column color of log.events to hue: Iceberg, DuckLake, `prism erase` and table files have the new name "
        "at once; older objects are rewritten, and until then readers of Glue, `prism query` among them, see color, "
        "then both names for 30 days, then hue alone",
    )
    assert world.apply().lines == (), "the field may stay in the file"
    rows += arrive(world, LATER)
    publish(world, LATER)
    look(world, rows, "color", "size", color="hue")
    world.merge(LATER, everything=True)
    publish(world, LATER)
    look(world, rows, "color", "size", color="hue")
    lost, *_ = keys(world, "/live/")
    world.context.stores.delete("lake", [lost])
    assert run_repair(world.context).repaired == 1
    look(world, rows, "color", "size", color="hue")
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    look(world, rows, "color", "size", color="hue")
    late = arrive(world, MORNING)
    world.merge(MORNING, everything=True)
    publish(world, MORNING)
    look(world, [*rows, *late], "color", "size", color="hue")
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(EVENING)).errors == ()
    publish(world, EVENING)
    look(world, [*rows, *late], "color", "size", color="hue")
    assert columns_of(world, merged(world)) == {"time": 1, "id": 2, "hue": 3, "size": 4, "color": COPY_IDS[3]}
    assert run_doctor(world.context, deep=True).is_clean


def test_erasures_go_on_by_either_name_of_a_column(world: World, rows: list[dict[str, Any]]) -> None:
    world.catalog(NIGHT)
    erase(world, "color = 'red'", rows=2)
    world.catalog(NIGHT)
    world.apply(events(HUE, SIZE))
    late = arrive(world, LATER)
    publish(world, LATER)
    left = [row for row in (*rows, *late) if row["color"] != "red"]
    look(world, left, "color", "size", color="hue")
    erase(world, "hue = 'blue'", rows=3)
    world.catalog(NIGHT)
    look(world, [row for row in left if row["color"] != "blue"], "color", "size", color="hue")


@pytest.mark.parametrize("point", ["write.after_put", "merge.in_commit"])
def test_a_merge_that_died_before_a_rename_is_done_again_behind_it(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    world.catalog(NIGHT)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=1*raise(InjectedFault)"))
    with suppress(failpoints.InjectedFault):
        assert world.merge(NIGHT, everything=True).problems
    monkeypatch.setattr(failpoints, "_POINTS", {})
    world.apply(events(HUE, SIZE))
    expire_leases(world)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    assert world.status(DAY, NIGHT).state == "switched"
    look(world, rows, "color", "size", color="hue")


def test_rows_are_sorted_and_computed_by_a_renamed_column(world: World, rows: list[dict[str, Any]]) -> None:
    said = "{name: loud, type: string, length: 20, value: upper(hue)}"
    text = a_table(columns=[HUE, SIZE, said], merge="{interval: 0, sort_by: [time, hue]}", iceberg="true")
    assert world.apply(text).lines[0].startswith("rename column color")
    more = arrive(world, LATER)
    for row in more:
        row["loud"] = row["color"] and row["color"].upper()
    publish(world, LATER)
    world.merge(LATER, everything=True)
    publish(world, LATER)
    look(world, [*(row | {"loud": None} for row in rows), *more], "color", "size", "loud", color="hue")


def test_a_column_takes_its_first_name_again(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(events(HUE, SIZE))
    back = events("{name: color, type: string, length: 20, was: hue, source: color}", SIZE)
    assert world.apply(back).lines == ("rename column hue of log.events to color",)
    publish(world, NOON)
    look(world, rows, "color", "size")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            [HUE, SIZE, "{name: color, type: string}"],
            "`was: color` of hue names a column of this file; remove `was` to add a column",
        ),
        (
            [HUE.replace("color", "tone"), SIZE],
            "`was: tone` of hue names no column of the table; remove `was` to add a column",
        ),
        (
            [HUE, HUE.replace("hue", "tint"), SIZE],
            "hue, tint say `was: color`; only one of them can",
        ),
        (
            [COLOR, "{name: count, type: integer, was: size}"],
            "count is bigint and cannot become integer; add a column instead",
        ),
        (
            [COLOR, SIZE, "{name: at, type: timestamp, was: time}"],
            "time decides the day of rows, and keeps its name",
        ),
        (
            ["{name: size, type: bigint, was: color}", "{name: color, type: string, length: 20, was: size}"],
            "color cannot become size, which is another column in force; choose a free name",
        ),
        (
            ["{name: color, type: string, length: 20, was: size, source: color}"],
            "size cannot become color, which is another column in force; choose a free name",
        ),
        (
            [COLOR.replace("}", ", was: hue}"), SIZE],
            "color has that name already, and `was: hue` would have it read from the key hue; remove it, or say "
            "`source: hue`",
        ),
        (
            [HUE.replace("color", "colr"), SIZE],
            "names no column of the table; did you mean color? Remove `was` to add a column",
        ),
    ],
    ids=[
        "still there",
        "never there",
        "twice",
        "another type",
        "the partition column",
        "a circle",
        "a name in force",
        "a key",
        "a slip",
    ],
)
def test_a_rename_that_is_none_is_refused(
    world: World, rows: list[dict[str, Any]], columns: list[str], told: str
) -> None:
    text = events(*columns)
    if "was: time" in text:
        text = text.replace("  - {name: time, type: timestamp, required: true}\n", "").replace(
            "column: time", "column: at"
        )
    assert told in refusal(world, text)


def test_the_name_that_objects_have_for_a_renamed_column_is_not_free(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(events(HUE, SIZE))
    told = "color is the name of hue in objects and Glue; choose another"
    assert told in refusal(world, events(HUE.replace(", was: color", ", source: color"), SIZE, COLOR))
    assert told in refusal(world, events(HUE, "{name: color, type: bigint, was: size}"))


def test_a_table_without_objects_renames_and_widens_for_every_reader(world: World) -> None:
    small = "{name: size, type: integer}"
    world.apply(events(COLOR, small))
    assert world.apply(events(HUE, SIZE)).lines == (
        "rename column color of log.events to hue",
        "widen column size of log.events from integer to bigint",
    )
    made = [row | {"hue": row["color"]} for row in arrive(world)]
    publish(world, NOON)
    look(world, made, "hue", "size")


def test_a_column_is_widened_by_copies_as_soon_as_an_object_was_begun(world: World) -> None:
    world.apply(events(COLOR, "{name: size, type: integer}"))
    world.drop(some_rows(1, utc(NOON)))
    world.discover(NOON)
    start_batch(world.context, None)
    (*_, left, _) = world.apply(events(COLOR, SIZE)).lines
    assert left == ("copy objects of log.events with wider types: 1 staging object claimed earlier, to be converted")


def test_a_rebuild_brings_no_values_of_a_column_whose_name_another_one_took_meanwhile(world: World) -> None:
    rows = a_switched_day(world)
    world.apply(events(COLOR, SIZE, "{name: hue, type: string, source: color}"))

    def meanwhile() -> None:
        world.apply(events(COLOR, SIZE))
        world.apply(events(COLOR, SIZE, "{name: hue, type: string, source: size}"))

    busy = another_worker(world, PausingEngine(world.context.engine, meanwhile))
    report = run_rebuild(busy.context, "log.events", day=utc(NOON).date(), now=utc(MORNING))
    assert "columns were renamed, widened or replaced meanwhile" in report.errors[0]
    publish(world, MORNING)
    assert world.query("SELECT hue FROM log.events") == [(None,)] * len(rows)


def test_longer_texts_are_shown_beside_those_of_before(world: World, rows: list[dict[str, Any]]) -> None:
    long = COLOR.replace("20", "40")
    world.apply(events(long, SIZE))
    row = some_rows(1, utc(NOON))[0] | {"color": "x" * 33, "size": 1}
    world.drop([row])
    world.stream(LATER)
    publish(world, LATER)
    look(world, [*rows, row], "color", "size")
    assert ("color", "varchar(40)") in world.reader().table("log.events").columns
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    look(world, [*rows, row], "color", "size")


def test_dagster_drops_no_column_by_itself(world: World) -> None:
    """A process with an older folder, or a half-done edit, must not take a column from readers."""
    world.apply(a_table(columns=["{name: kind, type: string}"]))
    (world.settings.tables_dir / "events.yaml").write_text(a_table())
    plan = apply_sound(world.context, world.settings.tables_dir, utc(NOON))
    assert (plan.lines, plan.problems) == (
        (),
        ("log.events: its file has no column kind: put it back, or drop it with `prism table apply`",),
    )
    assert world.apply(a_table()).lines[0].startswith("drop column kind of log.events: ")


def test_what_is_wrong_with_a_column_is_told_at_its_line(world: World, rows: list[dict[str, Any]]) -> None:
    text = events(COLOR, SIZE.replace("bigint", "integer"))
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "name: size" in one)
    with pytest.raises(DefinitionError) as raised:
        world.apply(text)
    assert f"events.yaml:{line}: columns[3].name: size is bigint and cannot become integer" in str(raised.value)
