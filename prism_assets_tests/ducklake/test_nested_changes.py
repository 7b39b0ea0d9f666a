"""Changes inside nested columns, as a client of DuckLake sees them in old and new objects and after a merge."""

from __future__ import annotations

from typing import Any

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.world import World

OLD = {"account": {"id": 7, "name": "ann", "items": [{"sku": "a", "n": 1}, None]}, "attrs": {"k": {"v": 0.5}}}
NEW = {
    "account": {"id": 8, "name": "bob", "zip": "9", "items": [{"sku": "b", "n": 2, "g": 1.5}]},
    "attrs": {"k": {"v": 1.5, "w": 3}, "j": None},
}


def a_file(account: str, item: str, value: str) -> str:
    items = f"{{name: items, type: list, element: {{type: struct, fields: [{item}]}}}}"
    columns = [
        f"{{name: account, type: struct, fields: [{account}, {items}]}}",
        f"{{name: attrs, type: map, value: {{type: struct, fields: [{value}]}}}}",
    ]
    return a_table(columns=columns, merge="{interval: 0}")


BEFORE = a_file(
    "{name: id, type: bigint}, {name: name, type: string}",
    "{name: sku, type: string}, {name: n, type: integer}",
    "{name: v, type: double}",
)
AFTER = a_file(
    "{name: zip, type: string}, {name: uid, was: id, type: bigint}",
    "{name: g, type: double}, {name: code, was: sku, type: string}",
    "{name: w, type: bigint}, {name: share, was: v, type: double}",
)  # fmt: skip


def test_added_dropped_and_renamed_fields_are_found_by_id(world: World, lake: LakeOfTest) -> None:
    world.apply(BEFORE)
    world.drop([row | OLD for row in some_rows(2, utc("2026-03-01T12:00"))])
    world.drop(some_rows(1, utc("2026-03-01T12:00"), account=None, attrs=None))
    world.stream("2026-03-01T12:10")
    query = "SELECT account, attrs FROM lake.log.events ORDER BY id"
    assert lake.query(query)[0] == (OLD["account"], OLD["attrs"])
    world.apply(AFTER)
    world.drop([row | NEW for row in some_rows(1, utc("2026-03-01T13:00"))])
    world.stream("2026-03-01T13:10")
    old = (
        {"zip": None, "uid": 7, "items": [{"g": None, "code": "a"}, None]},
        {"k": {"w": None, "share": 0.5}},
    )
    new = {"zip": "9", "uid": 8, "items": [{"g": 1.5, "code": "b"}]}, {"k": {"w": 3, "share": 1.5}, "j": None}
    wanted: list[tuple[Any, Any]] = [old, old, (None, None), new]
    assert lake.query(query) == wanted
    assert lake.query("SELECT account.uid FROM lake.log.events WHERE attrs['k'].share < 1") == [(7,), (7,)]
    world.catalog("2026-03-02T01:00")
    assert world.merge("2026-03-02T02:00", everything=True).errors == ()
    assert {row[0].split("/")[-3] for row in lake.query("SELECT filename FROM lake.log.events")} == {"merged"}
    assert lake.query(query) == wanted
