"""A column is widened while objects have its values: no reader finds null or another value for a stored one.

Readers that widen types by themselves see all rows at any time. A reader that trusts Glue's types fails only on days
not rewritten yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError, TerminalError
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.iceberg.plan import plan_commit
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass, keys
from prism_assets_tests.stages.catalogs import an_hour_passes
from prism_assets_tests.stages.engines import expire_leases, rest_is_over
from prism_assets_tests.stages.seen_columns import DAY, NIGHT, NOON, each_once, look, publish, refusal
from prism_assets_tests.stages.widened import (
    AFTER,
    BIG,
    COLUMNS,
    ENDED,
    LATER,
    LONG,
    NARROW,
    NEXT,
    SECOND_NIGHT,
    WIDE,
    WIDENED,
    a_file,
    arrive,
    closed_day,
    definition,
    die,
    drop,
    plans,
    said,
    see,
    strict,
    widen,
    widenings,
)
from prism_assets_tests.stages.widened import rows as rows
from prism_assets_tests.world import World


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def test_no_reader_finds_another_value_through_a_widening(world: World, rows: list[dict[str, Any]]) -> None:
    see(world, rows, NARROW)
    (*_, before) = world.iceberg_table().snapshots()
    (line, *_, left) = widen(world)
    assert line == (
        "widen column size of log.events from integer to bigint: once every catalog shows it, new objects have this "
        "type, and older ones are rewritten; until then Redshift Spectrum, and other readers of Glue that do not "
        "widen by themselves, fail on the column in days with older objects"
    )
    assert left == (
        "rewrite objects of log.events with wider types: 1 merged object to be rewritten, 1 object of open days, of "
        "2026-03-01 to 2026-03-02"
    )
    assert said(world, WIDENED) == (
        "column size was integer until 2026-03-02 10:00Z: older objects are left: 1 merged object to be rewritten, "
        "1 object of open days, of 2026-03-01 to 2026-03-02"
    )
    held = list(rows)
    rows += [*arrive(world, LATER, at=NEXT, wide=True), *arrive(world, LATER, wide=True)]
    publish(world, LATER)
    see(world, rows, WIDE, DAY, "2026-03-02")
    old = world.iceberg_table().scan(snapshot_id=before.snapshot_id, selected_fields=("id", *COLUMNS)).to_arrow()
    assert old.schema.field("size").type == "int32", "as the schema of that snapshot says"
    assert each_once([tuple(row.values()) for row in old.to_pylist()]) == {
        row["id"]: tuple(row[name] for name in COLUMNS) for row in held
    }
    filtered = world.iceberg_table().scan(row_filter=f"size >= {BIG} and price > 0.2").to_arrow()
    assert sorted(filtered["id"].to_pylist()) == sorted(row["id"] for row in rows if row["size"] == BIG)
    assert sorted(world.query(f"SELECT id FROM log.events WHERE size = {BIG}")) == sorted(
        (row["id"],) for row in rows if row["size"] == BIG
    )
    narrow = world.iceberg_table().scan(row_filter="size = 7 and cost = 12.34").to_arrow()
    assert sorted(narrow["id"].to_pylist()) == sorted(row["id"] for row in rows if row["size"] == 7)
    assert plans(world.merge(LATER, everything=True)) == ["write extend (0, 5] with 1 object"], "as good"
    publish(world, LATER)
    see(world, rows, WIDE, "2026-03-02")
    assert said(world, LATER).endswith("1 object of open days, of 2026-03-02")
    world.catalog(SECOND_NIGHT)
    world.merge(SECOND_NIGHT, everything=True)
    publish(world, SECOND_NIGHT)
    see(world, rows, WIDE)
    assert widenings(world) == list(COLUMNS)
    (report,) = world.catalog(ENDED).tables
    assert report.columns_advanced[0] == (
        "end the widening of column size of log.events to bigint: no object has integer now"
    )
    assert (widenings(world), said(world, ENDED)) == ([], "")
    assert plans(world.merge(ENDED)) == []
    assert not world.catalog(AFTER).changed
    rows += arrive(world, AFTER, at=AFTER, wide=True)
    publish(world, AFTER)
    hours_pass(world, 100)
    assert deleted(world), "none of what readers need"
    see(world, rows, WIDE)
    assert run_doctor(world.context, deep=True).is_clean


def test_an_object_that_was_begun_before_is_narrow_and_goes_with_the_next_merge(
    world: World, rows: list[dict[str, Any]]
) -> None:
    late = [*drop(world), *drop(world, at=NEXT)]
    world.discover(NEXT)
    start_batch(world.context, None)  # a worker dies with them
    widen(world)
    assert "2 staging objects claimed earlier, to be converted" in said(world, WIDENED)
    expire_leases(world)
    rest_is_over(world)
    world.stream(LATER)
    rows += late
    (lost, *_) = [key for key in keys(world, "/live/") if "2026-03-02" in key]
    before = world.context.stores.get("lake", lost)
    world.context.stores.delete("lake", [lost])
    assert run_repair(world.context).repaired == 1
    assert world.context.stores.get("lake", lost) == before, "of the width that it had"
    publish(world, LATER)
    see(world, rows, WIDE, DAY, "2026-03-02")
    world.merge(LATER, everything=True)
    publish(world, LATER)
    see(world, rows, WIDE, "2026-03-02")
    world.catalog(SECOND_NIGHT)
    world.merge(SECOND_NIGHT, everything=True)
    publish(world, SECOND_NIGHT)
    world.catalog(ENDED)
    assert widenings(world) == []
    see(world, rows, WIDE)


def test_an_erasure_matches_in_both_widths(world: World, rows: list[dict[str, Any]]) -> None:
    def erase(where: str, matching: int) -> None:
        world.catalog(SECOND_NIGHT)
        assert run_erase(world.context, "log.events", where, rows=matching).errors == ()
        world.iceberg(SECOND_NIGHT)
        assert continue_erasures(world.context, now=datetime.now(timezone.utc), forced=True).errors == ()
        publish(world, SECOND_NIGHT)

    erase("price = 0.1 AND cost = 12.34", 3)  # a rule over narrow columns, which wide values do not fit
    rows[:] = [row for row in rows if row["size"] != 7]
    widen(world)
    publish(world, WIDENED)
    see(world, rows, WIDE, DAY, "2026-03-02")
    more = [*arrive(world, LATER, at=NEXT, wide=True), *arrive(world, LATER, wide=True)]
    publish(world, LATER)
    rows += [row for row in more if row["size"] != 7]
    see(world, rows, WIDE, DAY, "2026-03-02")
    assert run_repair(world.context, deep=True).repaired == 0
    gone = next(row for row in rows if row["size"] == BIG)
    erase(f"size = {BIG} AND id = {gone['id']}", 1)
    rows.remove(gone)
    erase(f"size IS NULL AND id IN ({rows[0]['id']}, {gone['id']})", 1)
    rows.pop(0)
    see(world, rows, WIDE, "2026-03-02")
    world.merge(SECOND_NIGHT, everything=True)
    publish(world, SECOND_NIGHT)
    see(world, rows, WIDE)


def test_a_column_is_renamed_and_widened_in_one(world: World, rows: list[dict[str, Any]]) -> None:
    lines = widen(world, rename="bytes")
    assert [line.partition(" of ")[0] for line in lines[:2]] == ["rename column size", "widen column bytes"]
    publish(world, WIDENED)
    rows += arrive(world, LATER, at=NEXT, wide=True)
    publish(world, LATER)
    look(world, rows, *COLUMNS, size="bytes")
    assert plans(world.merge(LATER)) == ["write (0, 2] again"]
    world.catalog(SECOND_NIGHT)
    world.merge(SECOND_NIGHT, everything=True)
    publish(world, SECOND_NIGHT)
    look(world, rows, *COLUMNS, size="bytes")
    world.catalog(ENDED)
    assert widenings(world) == []
    assert strict(world, rows, WIDE) == []
    publish(world, "2026-03-03T06:00")
    assert [name for name, _ in world.reader().table("log.events").columns][-1] == "size", "both are shown"
    assert strict(world, [row | {"bytes": row["size"]} for row in rows], {"bytes": "bigint", **WIDE}) == []


@pytest.mark.parametrize("shown", [False, True])
def test_a_column_is_widened_while_it_is_on_the_way_to_its_name(world: World, shown: bool) -> None:
    rows = closed_day(world)
    world.apply(a_file(NARROW, rename="bytes"), now=WIDENED)
    world.merge(WIDENED)
    times = (WIDENED, LATER, SECOND_NIGHT, ENDED) if shown else (WIDENED,)
    for now in times:
        publish(world, now)
    now = times[-1]
    names = {name for name, _ in world.reader().table("log.events").columns}
    assert {"size", "bytes"} & names == ({"size", "bytes"} if shown else {"size"})
    widen(world, now=now, rename="bytes")
    rows += arrive(world, now, wide=True)
    publish(world, now)
    for failing in ([DAY], []):
        for name in {"size", "bytes"} & names:
            found = each_once(world.query(f"SELECT id, {name} FROM log.events"))
            assert found == {row["id"]: (row["size"],) for row in rows}
        both = WIDE | {"bytes": "bigint"} if shown else WIDE
        assert strict(world, [row | {"bytes": row["size"]} for row in rows], both) == failing
        world.merge(now, everything=True)
        publish(world, now)
    world.catalog(now)
    assert widenings(world) == []


def test_a_column_that_is_dropped_meanwhile_leaves_the_others_on_their_way(world: World) -> None:
    rows = closed_day(world)
    widen(world)
    kept = {name: kind for name, kind in WIDE.items() if name != "size"}
    world.apply(a_file(kept).replace("time, size", "time"), now=WIDENED)
    publish(world, WIDENED)
    see(world, rows, kept, DAY)
    assert widenings(world) == list(kept)
    assert "size was another column" in refusal(world, a_file(NARROW)), "objects have both types under the name"
    world.apply(a_file(kept).replace("time, size", "time"), now=WIDENED)
    world.merge(WIDENED)
    publish(world, WIDENED)
    see(world, rows, kept)


def test_a_column_is_widened_further_when_all_objects_have_one_width_and_never_narrowed(world: World) -> None:
    world.apply(a_file(NARROW))
    arrive(world)
    for types, told in (
        ({"size": "smallint"}, "size is integer and cannot become smallint; add a column instead"),
        ({"size": "double"}, "size is integer and cannot become double; add a column instead"),
        ({"cost": "decimal(10,3)"}, "cost is decimal(6,2) and cannot become decimal(10,3); add a column instead"),
    ):
        with pytest.raises(DefinitionError) as raised:
            widen(world, NARROW | types)
        assert told in str(raised.value)
    assert widenings(world) == []
    widen(world, NARROW | {"cost": "decimal(8,2)"})
    told = (
        "cost cannot become decimal(10,2) yet: it is still on its way to decimal(8,2), as `prism status --table "
        "log.events` says; widen it again afterwards, or at once with `prism table apply "
        "--accept-failing-reads`"
    )
    assert refusal(world, a_file(NARROW | {"cost": "decimal(10,2)"})) == told
    plan = apply_sound(world.context, world.settings.tables_dir, utc(WIDENED))
    assert plan.problems[0].endswith(told)
    widen(world, NARROW | {"cost": "decimal(10,2)"})


def test_a_rebuild_makes_the_values_that_did_not_fit_and_none_narrow(world: World) -> None:
    rows = closed_day(world)
    more = "{name: more, type: bigint, source: size}"
    world.apply(a_file(NARROW, more), now=WIDENED)
    told: list[str] = []

    def widen_meanwhile(said: str) -> None:
        if not told:
            world.apply(a_file(WIDE, more), now=WIDENED, accept_failing_reads=True)
            world.catalog(WIDENED)
        told.append(said)

    context = replace(world.context, progress=widen_meanwhile)
    report = run_rebuild(context, "log.events", day=utc(NOON).date(), now=utc(WIDENED))
    assert "columns were renamed, widened or replaced meanwhile" in report.errors[0]
    publish(world, WIDENED)
    assert strict(world, rows, WIDE) == [DAY]
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(LATER)).errors == ()
    publish(world, LATER)
    rows[0]["price"] = 0.1
    rows[2] |= {"size": BIG, "cost": LONG}
    see(world, [row | {"more": row["size"]} for row in rows], WIDE | {"more": "bigint"})
    assert plans(world.merge(LATER)) == []
    assert run_doctor(world.context, deep=True).is_clean


def test_a_rebuild_that_began_before_a_widening_takes_no_value_back_behind_its_end(world: World) -> None:
    more = "{name: more, type: bigint, source: size}"
    world.apply(a_file(NARROW))
    rows = arrive(world)
    world.catalog(NIGHT)
    world.apply(a_file(NARROW, more), now=WIDENED)
    told: list[str] = []

    def meanwhile(line: str) -> None:
        told.append(line)
        if len(told) == 1:
            world.apply(a_file(WIDE, more), now=WIDENED, accept_failing_reads=True)
            world.catalog(WIDENED)
            rows.extend(arrive(world, wide=True))
            world.merge(WIDENED, everything=True)
            for _ in range(3):
                publish(world, LATER)
            assert not widenings(world)

    context = replace(world.context, progress=meanwhile)
    report = run_rebuild(context, "log.events", day=utc(NOON).date(), now=utc(WIDENED))
    assert "were renamed, widened or replaced meanwhile" in str(report.errors)
    publish(world, LATER)
    found = world.query("SELECT id, size, cost FROM log.events ORDER BY id")
    assert found == sorted((row["id"], row["size"], row["cost"]) for row in rows)


def test_what_a_dead_merge_left_of_before_is_not_taken_for_wide(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(a_file(NARROW))
    rows = arrive(world)
    world.catalog(NIGHT)
    die(monkeypatch, "write.after_put", lambda: world.merge(NIGHT, everything=True))
    widen(world)
    expire_leases(world)
    world.merge(WIDENED, everything=True)
    publish(world, WIDENED)
    see(world, rows, WIDE)


def test_a_step_that_died_is_taken_by_the_next_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = closed_day(world)
    die(monkeypatch, "apply.in_table", lambda: widen(world))
    assert widenings(world) == []
    widen(world)
    publish(world, WIDENED)
    see(world, rows, WIDE, DAY)
    assert plans(world.merge(WIDENED)) == ["write (0, 1] again"]
    publish(world, WIDENED)
    for point, left in (("catalog.in_transition", list(COLUMNS)), ("catalog.after_transition", [])):
        die(monkeypatch, point, lambda: run_catalog(world.context, now=utc(LATER)))
        assert widenings(world) == left
    publish(world, LATER)
    see(world, rows, WIDE)


def test_a_column_is_widened_again_before_all_is_rewritten(world: World) -> None:
    rows = closed_day(world, NARROW | {"size": "smallint"})
    widen(world, NARROW)
    world.merge(WIDENED)
    publish(world, WIDENED)
    see(world, rows, NARROW)
    rows += arrive(world, LATER, at=NEXT)
    widen(world)
    assert said(world, LATER).startswith("column size was smallint until")
    publish(world, LATER)
    see(world, rows, WIDE, DAY, "2026-03-02")
    world.catalog(SECOND_NIGHT)
    world.merge(SECOND_NIGHT, everything=True)
    publish(world, SECOND_NIGHT)
    world.catalog(ENDED)
    assert widenings(world) == []
    assert strict(world, rows, WIDE) == []


def test_no_catalog_reads_a_wide_object_under_a_narrow_type(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(a_file(NARROW))
    rows = arrive(world)
    publish(world, NOON)
    before = definition(world)
    module = "prism_assets.stages.iceberg.run.plan_commit"

    def widen_meanwhile(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(module, plan_commit)
        widen(world, now=NOON)
        rows.extend(arrive(world, wide=True))
        return plan_commit(*arguments, **options)

    monkeypatch.setattr(module, widen_meanwhile)
    world.iceberg(NOON)
    found = world.iceberg_table().scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["size"].to_pylist(), strict=True)) == {
        row["id"]: row["size"] for row in rows
    }
    world.context.publisher.define(before)  # as somebody did by hand
    with pytest.raises(TerminalError, match="too great for its column's type in Glue, so Glue shows an outdated type"):
        world.query("SELECT size FROM log.events")
    an_hour_passes(world)
    publish(world, NOON)
    see(world, rows, WIDE, DAY)
