"""Changes inside nested columns, with old and new objects side by side and merged, by readers by name and by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

DAY, NEXT_DAY = "2026-03-01", "2026-03-02"
NIGHT, MORNING, LAST = "2026-03-03T00:30", "2026-03-03T09:00", "2026-03-03T12:00"

Value = Mapping[str, Any] | None
OLD: list[dict[str, Any]] = [
    {"account": {"id": 7, "name": "ann", "items": [{"sku": "a", "n": 1}, None]}, "attrs": {"k": {"v": 0.5}}},
    {"account": {"id": None, "name": None, "items": []}, "attrs": {}},
    {"account": None, "attrs": None},
]


def a_file(
    account: str = "id: integer, name: string(20)", item: str = "sku: string(5), n: integer", value: str = "v: double"
) -> str:
    """A table with a struct, a list of structs in it, and a map of structs."""
    columns = [
        f'{{name: account, type: "struct<{account}, items: list<struct<{item}>>>"}}',
        f'{{name: attrs, type: "map<string(9), struct<{value}>>"}}',
    ]
    return a_table(columns=columns, iceberg="true", merge="{interval: 0}")


def fields(*entries: str, items: str = "sku: string(5), n: integer") -> str:
    """The same table in the long form, with these fields of the account."""
    account = ", ".join([*entries, f'{{name: items, type: "list<struct<{items}>>"}}'])
    columns = [
        f"{{name: account, type: struct, fields: [{account}]}}",
        '{name: attrs, type: "map<string(9), struct<v: double>>"}',
    ]
    return a_table(columns=columns, iceberg="true", merge="{interval: 0}")


ATTRS = '{name: attrs, type: "map<string(9), struct<v: double>>"}'
ID, NAME = "{name: id, type: integer}", "{name: name, type: string, length: 20}"


def arrive(world: World, values: Sequence[Mapping[str, Any]], day: str, now: str) -> list[dict[str, Any]]:
    """Converts one object with these values on a day. Returns its rows."""
    rows = [row | dict(value) for row, value in zip(some_rows(len(values), utc(f"{day}T12:00")), values, strict=True)]
    world.drop(rows)
    world.stream(now)
    return rows


class Readers:
    """All readers of a table: by name through Glue, and by id."""

    def __init__(self, world: World) -> None:
        self.world = world

    def by_id(self) -> dict[int, tuple[Any, Any]]:
        """Iceberg, by PyIceberg. It reads null lists and maps of structs as empty ones."""
        rows = self.world.iceberg_table().scan().to_arrow()
        return {row["id"]: (row["account"], row["attrs"]) for row in rows.to_pylist()}

    def by_name(self) -> list[dict[int, tuple[Any, Any]]]:
        """`prism query`, pyarrow with the schema of the newest object, and DuckDB, each over the objects in Glue."""
        query = "SELECT id, account, attrs FROM log.events"
        asked = {row[0]: (row[1], row[2]) for row in self.world.query(query)}
        paths = self.paths()
        with duckdb.connect() as connection:
            found = connection.execute(
                "SELECT id, account, attrs FROM read_parquet($1, union_by_name = true, hive_partitioning = false)",
                [paths],
            ).fetchall()
        return [asked, {row[0]: (row[1], row[2]) for row in found}, self.by_dataset(paths)]

    def by_dataset(self, paths: Sequence[str]) -> dict[int, tuple[Any, Any]]:
        """A dataset of pyarrow, with the schema of the objects together."""
        schemas = [ds.dataset(path).schema.remove_metadata() for path in paths]
        widest = max(schemas, key=lambda schema: (len(str(schema)), str(schema)))
        rows = ds.dataset(list(paths), schema=widest).to_table().to_pylist()
        return {row["id"]: (row["account"], dict_of(row["attrs"])) for row in rows}

    def paths(self) -> list[str]:
        """The objects that Glue sends readers to."""
        return [
            str(self.world.root / "buckets" / item.url.removeprefix("s3://"))
            for partition in self.world.reader().table("log.events").partitions
            for item in partition.objects
        ]

    def glue(self) -> dict[str, set[str]]:
        """The types of both columns in Glue: of the table, and of all days."""
        catalog = self.world.glue
        name = f"{self.world.settings.glue_database_prefix}log"
        table = catalog._client.get_table(DatabaseName=name, Name="events")["Table"]
        days = catalog._client.get_partitions(DatabaseName=name, TableName="events")["Partitions"]
        shown: dict[str, list[Any]] = {"table": [table], "days": list(days)}
        found: dict[str, set[str]] = {"table": set(), "days": set()}
        for key, items in shown.items():
            for item in items:
                kinds = {column["Name"]: column["Type"] for column in item["StorageDescriptor"]["Columns"]}
                found[key].add(f"{kinds['account']} {kinds['attrs']}")
        return found


def dict_of(value: Any) -> Any:
    return dict(value) if isinstance(value, list) else value


def seen(values: Sequence[Mapping[str, Any]]) -> dict[int, tuple[Any, Any]]:
    return {row["id"]: (row["account"], row["attrs"]) for row in values}


def as_pyiceberg(value: Any) -> Any:
    """Returns a value as PyIceberg reads it: maps as pairs, null lists and maps of structs as empty ones."""
    account, attrs = value
    if account is not None:
        account = {**account, "items": account.get("items") or []}
    return account, list((attrs or {}).items())


def evolve(world: World, before: str, after: str, new: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Two days with objects from before and after a change, published. Returns the rows of both definitions."""
    world.apply(before)
    old = [*arrive(world, OLD, DAY, f"{DAY}T13:00"), *arrive(world, OLD, NEXT_DAY, f"{NEXT_DAY}T13:00")]
    world.catalog(f"{NEXT_DAY}T13:10")
    world.iceberg(f"{NEXT_DAY}T13:20")
    world.apply(after, now=f"{NEXT_DAY}T14:00")
    fresh = [
        *arrive(world, new, DAY, f"{NEXT_DAY}T15:00"),
        *arrive(world, new, NEXT_DAY, f"{NEXT_DAY}T15:10"),
    ]
    for row in old:
        row["is_old"] = True
    return [*old, *fresh]


def each_stage(world: World, look: Callable[[], None]) -> None:
    """Looks at small objects, and at merged objects of old and new ones."""
    world.catalog(f"{NEXT_DAY}T16:00")
    world.iceberg(f"{NEXT_DAY}T16:10")
    look()
    world.catalog(NIGHT)
    report = world.merge(NIGHT, everything=True)
    assert report.errors == ()
    world.catalog(MORNING)
    world.iceberg(LAST)
    assert all("/merged/" in path for path in Readers(world).paths())
    look()


def refusal(world: World, file: str) -> str:
    with pytest.raises(DefinitionError) as raised:
        world.apply(file)
    return str(raised.value)


ADDED = a_file(
    "zip: string(5), id: integer, name: string(20)", "n: integer, sku: string(5), g: double", "w: bigint, v: double"
)
NEW_VALUES: list[dict[str, Any]] = [
    {
        "account": {"zip": "9", "id": 8, "name": "bob", "items": [{"n": 2, "sku": "b", "g": 0.5}]},
        "attrs": {"k": {"w": 3, "v": 1.5}, "j": None},
    },
    {"account": None, "attrs": {"k": {"w": None, "v": None}}},
]


def with_added(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an old row with the fields added later."""
    account, attrs = row["account"], row["attrs"]
    if account is not None:
        items = [item and {"n": item["n"], "sku": item["sku"], "g": item.get("g")} for item in account["items"]]
        account = {"zip": account.get("zip"), "id": account["id"], "name": account["name"], "items": items}
    if attrs is not None:
        attrs = {key: value and {"w": value.get("w"), "v": value["v"]} for key, value in attrs.items()}
    return {"id": row["id"], "account": account, "attrs": attrs}


def test_added_fields_are_null_in_old_rows_for_every_reader_before_and_after_a_merge(world: World) -> None:
    rows = [with_added(row) for row in evolve(world, a_file(), ADDED, NEW_VALUES)]
    assert world.apply().lines == ()
    readers, wanted = Readers(world), seen(rows)

    def look() -> None:
        for found in readers.by_name():
            assert found == wanted
        assert readers.by_id() == {number: as_pyiceberg(value) for number, value in wanted.items()}
        kinds = {
            "struct<id:int,name:varchar(20),items:array<struct<sku:varchar(5),n:int,g:double>>,zip:varchar(5)> "
            "map<varchar(9),struct<v:double,w:bigint>>"
        }
        assert readers.glue() == {"table": kinds, "days": kinds}

    each_stage(world, look)


def test_apply_says_which_parts_it_adds_and_nothing_of_another_order(world: World) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    assert world.apply(ADDED).lines == (
        "change parts of column account of log.events: add account.zip string(5); add account.items[].g double",
        "change parts of column attrs of log.events: add attrs{}.w bigint",
    )
    other = a_file(
        "name: string(20), zip: string(5), id: integer", "g: double, sku: string(5), n: integer", "v: double, w: bigint"
    )
    assert world.apply(other).lines == (
        "change parts of column account of log.events: their order",
        "change parts of column attrs of log.events: their order",
    )
    assert world.apply().lines == ()


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (a_file("id: smallint, name: string(20)"), "account.id is integer and cannot become smallint; add a field of"),
        (a_file("id: string, name: string(20)"), "account.id is integer and cannot become string; add a field of"),
        (a_file("id: integer, name: string(9)"), "account.name would be shorter than values in objects may be"),
        (a_file("id: integer, name: list<string>"), "account.name is string and cannot become list<string>"),
        (a_file(value="v: string"), "attrs{}.v is double and cannot become string; add a field of another name, or a"),
        (
            a_table(columns=['{name: account, type: "list<string>"}', ATTRS]),
            "and cannot become list<string>; add a column instead",
        ),
        (
            a_file().replace("map<string(9), struct<v: double>>", "map<string(9), double>"),
            "attrs{} is struct<v: double> and cannot become double; add a column",
        ),
        (a_file().replace("map<string(9)", "map<string(4)"), "attrs{key} would be shorter than values in objects"),
    ],
)  # fmt: skip
def test_other_types_of_parts_are_refused_with_what_to_do_instead(world: World, file: str, told: str) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    assert told in refusal(world, file)
    assert world.apply(a_file()).lines == ()


def dropped_from(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    account = row["account"] and {name: value for name, value in row["account"].items() if name not in names}
    return {**row, "account": account}


WITHOUT_ID: list[dict[str, Any]] = [
    {"account": {"name": "bob", "items": [{"sku": "b", "n": 2}]}, "attrs": None},
    {"account": None, "attrs": {}},
]


def test_a_dropped_field_keeps_its_place_in_glue_and_is_null_in_new_rows(world: World) -> None:
    rows = evolve(world, a_file(), a_file("name: string(20)"), WITHOUT_ID)
    assert world.apply().lines == ()
    readers = Readers(world)
    by_id = seen([dropped_from(row, "id") for row in rows])
    by_name = seen([{**row, "account": row["account"] and {"id": None, **row["account"]}} for row in rows])

    def look() -> None:
        assert readers.by_id() == {number: as_pyiceberg(value) for number, value in by_id.items()}
        for found in readers.by_name():
            assert found == by_name
        (kinds,) = readers.glue()["table"]
        assert kinds.startswith("struct<id:int,name:varchar(20),items:array<")
        assert readers.glue()["days"] == {kinds}

    each_stage(world, look)


def test_a_dropped_field_at_the_end_leaves_the_days_first_and_then_the_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fields(ID, NAME).replace("items", "zones")
    after = a_table(
        columns=[
            f"{{name: account, type: struct, fields: [{ID}, {NAME}]}}",
            '{name: attrs, type: "map<string(9), struct<v: double>>"}',
        ],
        iceberg="true",
        merge="{interval: 0}",
    )
    world.apply(before)
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    world.catalog(f"{DAY}T13:10")
    whole = "struct<id:int,name:varchar(20),zones:array<struct<sku:varchar(5),n:int>>> map<varchar(9),struct<v:double>>"
    assert Readers(world).glue() == {"table": {whole}, "days": {whole}}
    calls: list[tuple[str, str]] = []
    client = world.glue._client

    def note(params: Any, **context: Any) -> None:
        storage = params.get("TableInput", params).get("StorageDescriptor")
        storage = storage or params["Entries"][0]["PartitionInput"]["StorageDescriptor"]
        calls.append((context["model"].name, storage["Columns"][2]["Type"]))

    watched = [f"provide-client-params.glue.{name}" for name in ("UpdateTable", "BatchUpdatePartition")]
    for event in watched:
        client.meta.events.register(event, note)
    try:
        line = "change parts of column account of log.events: remove account.zones; remove account.zones[]"
        assert world.apply(after).lines[0].startswith(line)
        world.catalog(f"{DAY}T14:00")
        short = "struct<id:int,name:varchar(20)>"
        assert calls == [("BatchUpdatePartition", short), ("UpdateTable", short)]
        shown = {f"{short} map<varchar(9),struct<v:double>>"}
        assert Readers(world).glue() == {"table": shown, "days": shown}
        calls.clear()
        assert world.catalog(f"{DAY}T14:10").changed is False
        added = after.replace(NAME, f"{NAME}, {{name: zip, type: string, length: 3}}")
        world.apply(added)
        world.catalog(f"{DAY}T14:20")
        longer = "struct<id:int,name:varchar(20),zones:array<struct<sku:varchar(5),n:int>>,zip:varchar(3)>"
        assert calls == [("UpdateTable", longer), ("BatchUpdatePartition", longer)]
    finally:  # other tests share the client
        for event in watched:
            client.meta.events.unregister(event, note)


def test_dagster_drops_no_field(world: World) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    (world.settings.tables_dir / "events.yaml").write_text(a_file("name: string(20)"))
    plan = apply_sound(world.context, world.settings.tables_dir, utc(f"{DAY}T14:00"))
    assert plan.lines == ()
    assert plan.problems == (
        "log.events: its file has no field account.id: put it back, or drop it with `prism table apply`",
    )


RENAMED = fields("{name: uid, was: id, type: integer}", NAME, items="sku: string(5), n: integer")


def test_a_renamed_field_has_its_new_name_by_id_and_its_first_name_in_objects(world: World) -> None:
    rows = evolve(
        world, a_file(), RENAMED, [{"account": {"id": 9, "name": "bob", "items": [{"sku": "b", "n": 2}]}, "attrs": {}}]
    )
    assert world.apply().lines == ()
    readers, wanted = Readers(world), seen(rows)

    def renamed(value: Any) -> Any:
        account, attrs = as_pyiceberg(value)
        if account is not None:
            account = {"uid": account.pop("id"), **account}
        return account, attrs

    def look() -> None:
        assert readers.by_id() == {number: renamed(value) for number, value in wanted.items()}
        for found in readers.by_name():
            assert found == wanted
        (kinds,) = readers.glue()["table"]
        assert kinds.startswith("struct<id:int,name:varchar(20),items:")

    each_stage(world, look)
    assert [row[0] for row in world.query("SELECT account.id FROM log.events WHERE account.id = 9")] == [9, 9]


def test_a_rename_is_told_with_the_name_that_readers_by_name_keep_and_may_be_taken_back(world: World) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    assert world.apply(RENAMED).lines == (
        "change parts of column account of log.events: rename account.id to account.uid, which stays id in objects, in "
        "Glue and for `prism query`",
    )
    told = refusal(world, fields("{name: uid, was: id, type: integer}", NAME, "{name: id, type: integer}"))
    assert "account.id cannot be added: id is the name of account.uid in objects and in Glue; choose another" in told
    again = fields("{name: number, was: uid, source: id, type: integer}", NAME)
    assert "rename account.uid to account.number, which stays id" in world.apply(again).lines[0]
    told = refusal(world, a_file())
    assert "or say `was: number` to rename account.number" in told
    back = fields("{name: id, was: number, type: integer}", NAME).replace("was: number", "was: number, source: id")
    assert world.apply(back).lines == (
        "change parts of column account of log.events: rename account.number to account.id",
    )
    assert world.apply(a_file()).lines == ()


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ((ID, NAME, "{name: zip, was: zap, type: string}"), "`was: zap` of account.zip names no field of account"),
        (("{name: a, was: id, type: integer}", "{name: b, was: id, type: integer}", NAME), "a and b of account say"),
        (("{name: id, was: id, type: integer}", NAME), "is the current name of the field; give the former one"),
        ((ID, "{name: uid, was: name, type: bigint}"), "account.uid is string and cannot become bigint"),
        (("{name: id, was: name, type: integer}",), "account.name cannot become account.id, which is another field"),
        (("{name: id, was: number, type: integer}", NAME), "`was: number` would have it read from the key number"),
    ],
)  # fmt: skip
def test_a_wrong_rename_of_a_field_is_refused(world: World, entries: Sequence[str], told: str) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    assert told in refusal(world, fields(*entries))


def test_the_name_of_a_dropped_field_is_free_once_its_days_are_rebuilt_and_has_its_place_in_glue(world: World) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(MORNING)
    world.apply(a_file("name: string(20)"))
    again = a_file("name: string(20), id: string(3)")
    told = (
        "account.id was another field, whose values readers of Glue would take for those of the new one: objects of "
        f"{DAY} may have it under that name; choose another name, or rebuild them: `prism rebuild log.events --date "
        f"{DAY}` when the days are closed, and `prism catalog`"
    )
    assert told in refusal(world, again)
    assert "was another field, which Glue shows" in refusal(world, fields("{name: id, was: name, type: string}"))
    world.apply(a_file("name: string(20)"))
    world.catalog(MORNING)
    report = run_rebuild(world.context, "log.events", day=utc(DAY).date(), now=utc(MORNING))
    assert report.errors == ()
    assert told in refusal(world, again)
    world.apply(a_file("name: string(20)"))
    world.catalog(LAST)
    assert world.apply(again, now=LAST).lines == (
        "change parts of column account of log.events: add account.id string(3)",
    )
    assert world.apply().lines == ()
    arrive(world, [{"account": {"id": "abc", "name": "bob", "items": []}, "attrs": {}}], NEXT_DAY, LAST)
    world.catalog(LAST)
    world.iceberg(LAST)
    wanted = [("abc", "bob"), (None, "ann"), (None, None), (None, None)]
    query = "SELECT account.id, account.name FROM log.events ORDER BY ALL NULLS LAST"
    assert world.query(query) == wanted
    found = world.iceberg_table().scan().to_arrow().column("account").to_pylist()
    by_id = [(row["id"], row["name"]) if row else (None, None) for row in found]
    assert sorted(by_id, key=str) == sorted(wanted, key=str)
    (kinds,) = Readers(world).glue()["table"]
    assert kinds.startswith("struct<id:varchar(3),name:varchar(20),items:")


WIDE = a_file("id: bigint, name: string(20)", "sku: string(5), n: bigint")
BIG = 3_000_000_000


def test_widened_leaves_are_copied_and_flip_in_one_step_for_every_reader(world: World) -> None:
    world.apply(a_file())
    rows = [*arrive(world, OLD, DAY, f"{DAY}T13:00"), *arrive(world, OLD, DAY, f"{DAY}T13:05")]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(MORNING)
    world.iceberg(MORNING)
    leaves = "account.id {0}, account.items[].n {0}"
    widened = f"widen column account of log.events from {leaves.format('integer')} to {leaves.format('bigint')}"
    assert world.apply(WIDE, now=LAST).lines[0].startswith(f"{widened}: merged objects are copied with this type")
    assert world.apply(WIDE, now=LAST).lines == ()
    readers = Readers(world)
    (kinds,) = readers.glue()["table"]
    assert "id:int," in kinds
    more = WIDE.replace("name: string(20)", "name: string(20), zip: string(3)")
    assert world.apply(more, now=LAST).lines == (
        "change parts of column account of log.events: add account.zip string(3)",
    )
    assert world.apply(more, now=LAST).lines == ()
    assert world.merge(LAST).errors == ()
    for minute in (10, 20, 30, 40):
        world.catalog(f"2026-03-03T12:{minute}")
    (kinds,) = readers.glue()["table"]
    item = "array<struct<sku:varchar(5),n:bigint>>"
    assert kinds.startswith(f"struct<id:bigint,name:varchar(20),items:{item},zip:varchar(3)>")
    assert readers.glue()["days"] == {kinds}
    new = {"account": {"id": BIG, "name": "bob", "items": [{"sku": "b", "n": BIG}], "zip": "9"}, "attrs": {}}
    rows += arrive(world, [new], DAY, "2026-03-03T13:00")
    wanted = seen([{**row, "account": row["account"] and {"zip": None, **row["account"]}} for row in rows])
    for minute in (10, 20):
        world.catalog(f"2026-03-03T13:{minute}")
        world.iceberg(f"2026-03-03T13:{minute}")
        for found in readers.by_name():
            assert found == wanted
        assert readers.by_id() == {number: as_pyiceberg(value) for number, value in wanted.items()}
        assert world.merge("2026-03-03T13:15", everything=True).errors == ()
    assert str(world.iceberg_table().schema().find_type("account.id")) == "long"
    run_erase(world.context, "log.events", f"account.id = {BIG}", rows=1, now=utc("2026-03-03T14:00"))
    world.catalog("2026-03-03T14:10")
    assert len(world.ids()) == len(rows) - 1


def test_widened_leaves_are_shown_first_where_failing_reads_are_accepted(world: World) -> None:
    world.apply(a_file())
    rows = arrive(world, OLD, DAY, f"{DAY}T13:00")
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(MORNING)
    world.apply(WIDE, now=LAST, accept_failing_reads=True)
    world.catalog(LAST)
    (kinds,) = Readers(world).glue()["table"]
    assert "id:bigint" in kinds
    new = {"account": {"id": BIG, "name": "bob", "items": []}, "attrs": {}}
    rows += arrive(world, [new], DAY, "2026-03-03T13:00")
    wanted = seen(rows)
    for _ in range(2):
        world.catalog("2026-03-03T13:10")
        for found in Readers(world).by_name():
            assert found == wanted
        assert world.merge("2026-03-03T13:15", everything=True).errors == ()
    world.catalog("2026-03-03T13:20")
    assert world.apply(WIDE, now=LAST).lines == ()
    told = refusal(world, a_file())
    assert "account.id is bigint and cannot become integer" in told


def test_a_leaf_is_widened_at_once_in_a_table_that_was_never_read(world: World) -> None:
    world.apply(a_file())
    assert world.apply(WIDE).lines == (
        "change parts of column account of log.events: account.id is read as bigint; account.items[].n is read as "
        "bigint",
    )
    assert world.apply().lines == ()


def test_a_widening_ends_when_its_leaf_is_dropped(world: World) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    world.apply(a_file("id: bigint, name: string(20)"), now=f"{DAY}T14:00")
    (table,) = world.context.choose_tables(["log.events"])
    assert table.is_copying
    world.apply(a_file("name: string(20)"), now=f"{DAY}T15:00")
    (table,) = world.context.choose_tables(["log.events"])
    assert not table.is_copying
    assert world.apply().lines == ()


def test_expressions_and_erasures_use_the_current_names_of_fields(world: World) -> None:
    computed = '{name: size, type: bigint, value: "account.uid + 1"}'
    renamed = RENAMED.replace("merge:", f"  - {computed}\nmerge:")
    rows = evolve(world, a_file(), renamed, [{"account": {"id": 9, "name": "bob", "items": []}, "attrs": {}}])
    world.catalog(NIGHT)
    assert sorted(world.query("SELECT size, count(*) FROM log.events GROUP BY size"), key=str) == [(10, 2), (None, 6)]
    world.merge(NIGHT, everything=True)
    world.catalog(MORNING)
    run_erase(world.context, "log.events", "account.uid = 7", rows=2, now=utc(LAST))
    world.catalog(LAST)
    left = [row["id"] for row in rows if (row["account"] or {}).get("id") != 7]
    assert sorted(world.ids()) == sorted(left)


def test_dropped_fields_count_among_the_characters_of_a_type_in_glue(world: World) -> None:
    many, others = (
        a_table(columns=[f'{{name: account, type: "struct<{fields}>"}}'])
        for fields in (
            ", ".join(f"{letter * 56}{number:04}: list<list<bigint>>" for number in range(330)) for letter in "ab"
        )
    )
    world.apply(many)
    world.drop(some_rows(1, utc(f"{DAY}T12:00")))
    world.stream(f"{DAY}T13:00")
    added = many.replace(">>>", ">>, c: bigint>")
    assert world.apply(added).lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prism_assets.domain.columns.changes.GLUE_TYPE", 40_000)
        assert "characters in Glue with its dropped fields, and Glue takes 40,000: add a column" in refusal(
            world, others
        )


def test_a_field_of_a_column_that_an_erasure_names_is_not_dropped(world: World) -> None:
    world.apply(a_file())
    arrive(world, OLD, DAY, f"{DAY}T13:00")
    run_erase(world.context, "log.events", "account.id = 42", rows=0, now=utc(f"{DAY}T14:00"))
    told = refusal(world, a_file("name: string(20)"))
    assert "account gets another type or loses a part, and erasure 1 names it: erased rows would return" in told
    assert world.apply(RENAMED).lines
