"""Child tables read records inside of lines that other tables divide. Work on one leaves the others as they are."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.stages.shared_prefix import (
    ACCOUNTS,
    EVENTS,
    LATER,
    NOON,
    WHEN,
    WIDER,
    finish,
    ledgers,
    rebuild,
    undivided,
)
from prism_assets_tests.world import World

KIND = '{name: kind, type: string, source: "$outer.kind"}'


def items(**more: Any) -> str:
    """The table file of the child."""
    records = '"s3://staging/app/", format: {json: {records: "$.items[*]"}}}'
    return a_table("log.items", **more).replace('"s3://staging/items/"}', records)


@pytest.fixture
def family(world: World) -> World:
    """Two tables that divide the lines of a prefix, and one that reads the items inside of them."""
    world.apply(ACCOUNTS, EVENTS, items(columns=[KIND]))
    return world


def put(world: World, *inside: list[dict[str, Any]]) -> None:
    """Puts one object with a sign-up and a view in turn, each with some items."""
    kinds = ["signup", "view"] * len(inside)
    rows = [
        {**row, "kind": kind, "items": found}
        for row, kind, found in zip(some_rows(len(inside), utc(NOON)), kinds, inside, strict=False)
    ]
    world.drop([], stream="app", body=zipped(as_lines(rows)))
    finish(world)


def others(world: World) -> dict[str, Any]:
    """Rows and ledgers of the tables that divide the lines."""
    found = {name: sorted(world.ids(f"log.{name}")) for name in ("accounts", "events")}
    return {**found, **{name: ledgers(world)[name] for name in found}}


def kinds(world: World) -> list[tuple[int, str | None]]:
    return sorted((row[0], row[1]) for row in world.query("SELECT id, kind FROM log.items"))


def test_a_rebuild_of_the_child_finds_the_same_records(family: World) -> None:
    parts = some_rows(3, utc(NOON))
    put(family, parts[:2], parts[2:])
    before = others(family)
    assert [kind for _, kind in kinds(family)] == ["signup", "signup", "view"]
    family.apply(items(columns=[KIND.replace("$outer.kind", "$outer.id")]))
    report = run_rebuild(family.context, "log.items", day=utc(NOON).date(), now=utc(LATER))
    assert report.errors == ()
    finish(family)
    assert family.ids("log.items") == sorted(part["id"] for part in parts)
    assert {kind for _, kind in kinds(family)}.isdisjoint({"signup", "view"})
    assert others(family) == before
    assert undivided(family) == []


def test_an_erasure_of_the_child_takes_its_rows_and_no_line_of_the_others(family: World) -> None:
    parts = some_rows(3, utc(NOON))
    put(family, parts[:2], parts[2:])
    before = others(family)
    gone = parts[0]["id"]
    run_erase(family.context, "log.items", f"id = {gone}", rows=1, now=utc(LATER))
    finish(family)
    assert family.ids("log.items") == sorted(part["id"] for part in parts[1:])
    assert others(family) == before
    put(family, [parts[0]], [])  # comes once more
    assert family.ids("log.items") == sorted(part["id"] for part in parts[1:])
    assert undivided(family) == []


def test_an_erasure_of_a_parent_leaves_the_records_of_the_child(family: World) -> None:
    parts = some_rows(2, utc(NOON))
    put(family, parts[:1], parts[1:])
    (gone,) = family.ids("log.accounts")
    run_erase(family.context, "log.accounts", f"id = {gone}", rows=1, now=utc(LATER))
    finish(family)
    assert family.ids("log.accounts") == []
    assert family.ids("log.items") == sorted(part["id"] for part in parts)


@pytest.mark.parametrize("beside", [0, 1])
def test_a_replay_of_the_child_makes_rows_of_records_in_quarantine(family: World, beside: int) -> None:
    """Without rows the object restarts; beside rows the day is rebuilt."""
    parts = some_rows(beside, utc(NOON))
    late = {"id": 7, "when": "2026-03-01T12:00:00Z"}
    put(family, [*parts, late], [])
    before = others(family)
    assert ledgers(family)["items"] == (beside + 1, beside, 1, 0)
    family.apply(items(columns=[KIND]).replace("{name: time,", WHEN))
    assert run_replay(family.context, "log.items", now=utc(LATER)).errors == ()
    finish(family)
    assert kinds(family) == sorted([*((part["id"], "signup") for part in parts), (7, "signup")])
    assert ledgers(family)["items"] == (beside + 1, beside + 1, 0, 0)
    assert others(family) == before


def test_changed_routes_of_the_parents_are_no_matter_of_the_child(family: World) -> None:
    """Also for a replay, which leaves objects that the parents divided by earlier routes."""
    late = {"id": 7, "when": "2026-03-01T12:00:00Z"}
    put(family, [late], [])
    family.apply(WIDER, EVENTS, items(columns=[KIND]).replace("{name: time,", WHEN))
    report = run_replay(family.context, "log.items", now=utc(LATER))
    assert (report.earlier_division, report.objects) == (0, 1)
    rebuild(family, "log.accounts", "log.events")
    assert family.ids("log.items") == [7]
    assert undivided(family) == []
