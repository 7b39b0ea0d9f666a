"""Records with nested columns: the values of the winner as a whole, from two streams to every reader."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Line, Requests, a_join_table, back, front, some_changes
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
OVER = "2026-03-02T01:40"
PAGE = "struct<path: string(20), tags: list<string(5)>, at: timestamp>"
STATUS = "map<string(9), struct<code: bigint>>"
PAGES: dict[str | None, Any] = {
    None: None,
    "home": {"path": "/", "tags": [], "at": f"{NOON}:00Z"},
    "cart": {"path": None, "tags": ["a", None], "at": None},
    "pay": {"path": "/pay", "tags": None, "at": f"{NOON}:01.250Z"},
}
STATUSES: dict[int | None, Any] = {
    None: None,
    200: {"k": {"code": 200}},
    404: {},
    500: {"k": None, "j": {"code": None}},
}


def a_file(*, page: str = PAGE, **more: Any) -> str:
    """The join table with nested columns of both groups."""
    text = a_join_table(**more)
    text = text.replace("{name: page, type: string,", f'{{name: page, type: "{page}",')
    return text.replace("{name: status, type: bigint,", f'{{name: status, type: "{STATUS}",')


def nested(changes: list[tuple[str, Line]]) -> list[tuple[str, Line]]:
    """The same changes with nested values."""
    return [
        (name, {**line, **({"page": PAGES[line["page"]]} if name == "front" else {"status": STATUSES[line["status"]]})})
        for name, line in changes
    ]


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns rows with maps as mappings, whatever the reader makes of them, in one order."""

    def of(value: Any) -> Any:
        if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
            return dict(value)
        return {key: of(item) for key, item in value.items()} if isinstance(value, dict) else value

    return sorted((tuple(map(of, row)) for row in rows), key=str)


def seen_in_iceberg(requests: Requests) -> list[tuple[Any, ...]]:
    return plain(requests.seen_in_iceberg())


def without_null_maps(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns rows as PyIceberg reads them: it takes a null map of structs for an empty one."""
    return sorted(((*row[:-1], row[-1] or []) for row in rows), key=str)


@pytest.mark.parametrize("owner", [False, True], ids=["no owner", "an owner"])
def test_nested_values_are_those_of_the_winner_whenever_changes_are_folded(world: World, owner: bool) -> None:
    world.apply(a_file(owner=owner, more="iceberg: true\n"))
    requests = Requests(world)
    changes = nested(some_changes(7, 90, NOON, requests=12, hours=6))
    for start in range(0, len(changes), 30):
        requests.arrive(changes[start : start + 30], NOON)
        assert plain(requests.show(NOON)) == plain(requests.wanted())
    rows = plain(requests.seen())
    assert {type(row[3]) for row in rows} == {dict, type(None)}
    world.discover(OVER)
    requests.fold(OVER)
    assert world.merge(OVER).errors == ()
    world.catalog(OVER)
    assert plain(requests.seen()) == rows == plain(requests.wanted())
    world.iceberg(OVER)
    assert without_null_maps(seen_in_iceberg(requests)) == without_null_maps(rows)
    (done,) = run_rebuild(world.context, "log.request", now=utc(OVER)).records
    assert done.fold_id is None  # made again, they are the same records


def test_changes_that_wait_keep_their_nested_values(world: World) -> None:
    """Few changes of many records wait in an object of their own, and the next fold joins them."""
    world.apply(a_file(dirty=0.9))
    requests = Requests(world)
    requests.arrive(nested([("front", front(f"r{number}", NOON, "home")) for number in range(40)]), NOON)
    requests.show(NOON)
    requests.arrive(nested([("back", back("r1", NOON, 1, 500))]), NOON)
    requests.show(NOON)
    requests.arrive(nested([("back", back(f"r{number}", NOON, 2, 200)) for number in range(2, 40)]), NOON)
    assert plain(requests.show(NOON)) == plain(requests.wanted())
    by_id = {row[0]: row[3:] for row in plain(requests.seen())}
    home = {**PAGES["home"], "at": utc(NOON)}
    assert by_id["r1"] == (home, 1, STATUSES[500])
    assert by_id["r2"] == (home, 2, STATUSES[200])


def test_records_that_settle_go_with_their_nested_values(world: World) -> None:
    world.apply(a_file(after="delete"))
    requests = Requests(world)
    requests.arrive(nested([("front", front("a", NOON, "home")), ("front", front("b", f"{DAY}T12:10", "pay"))]), NOON)
    assert len(requests.show(NOON)) == 2
    world.discover(f"{DAY}T13:36")
    assert [row[0] for row in requests.show(f"{DAY}T13:36")] == ["b"]


def test_a_field_is_added_to_records_and_their_changes_alike(world: World) -> None:
    world.apply(a_file(more="iceberg: true\n"))
    requests = Requests(world)
    requests.arrive(nested([("front", front("a", NOON, "home")), ("front", front("b", NOON, "pay"))]), NOON)
    requests.show(NOON)
    wider = PAGE.replace("at: timestamp", "at: timestamp, size: bigint")
    added = "change parts of column page of {}: add page.size bigint"
    assert set(world.apply(a_file(page=wider, more="iceberg: true\n")).lines) == {
        added.format("log.request"),
        added.format("log.request_changes"),
    }
    later = front("b", NOON, "pay", sent=1)
    requests.arrive([("front", {**later, "page": {"path": "/b", "size": 7}}), ("back", back("a", NOON, 1))], NOON)
    rows = plain(requests.show(NOON))
    assert rows == plain(requests.wanted())
    assert {row[0]: (row[3]["path"], row[3]["size"]) for row in rows} == {"a": ("/", None), "b": ("/b", 7)}
    world.iceberg(NOON)
    assert without_null_maps(seen_in_iceberg(requests)) == without_null_maps(rows)
    for less in (PAGE.replace(", at: timestamp", ""), wider.replace("size", "bytes")):
        with pytest.raises(DefinitionError, match="cannot be dropped or renamed: columns of join tables keep their"):
            world.apply(a_file(page=less, more="iceberg: true\n"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (a_file().replace("group: front}", "group: front, merge: last_non_null}"), "a struct is taken whole from the"),
        (a_file().replace("group: back}", "group: back, merge: count}"), "a map is taken whole from the winner"),
        (a_file().replace("key: [request_id]", "key: [page]"), "page is a struct, and records are found by"),
        (a_file().replace("sequence: [sent_at]", "sequence: [page]"), "which has no order of changes"),
    ],
)  # fmt: skip
def test_a_nested_column_is_no_key_no_sequence_and_has_no_other_merge(world: World, text: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        world.apply(text)
