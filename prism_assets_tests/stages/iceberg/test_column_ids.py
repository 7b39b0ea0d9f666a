"""I-H2: readers find columns by the ids in the files, in any order."""

from __future__ import annotations

import pytest
from pyiceberg.types import LongType, StringType, TimestamptzType

from prism_assets.publishers.iceberg.schema import iceberg_schema
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.iceberg.clients import a_client
from prism_assets_tests.stages.iceberg.days import NOON, attempt
from prism_assets_tests.world import World

FIRST = ["{name: name, type: string}", "{name: size, type: bigint}"]
OTHERS = ["{name: size, type: bigint}", "{name: colour, type: string}", "{name: name, type: string}"]


def read(world: World) -> list[dict[str, object]]:
    rows = world.iceberg_table().scan().to_arrow().to_pylist()
    return sorted(({key: row[key] for key in row if key not in ("time", "dt")} for row in rows), key=_id)


def _id(row: dict[str, object]) -> str:
    return str(row["id"]).rjust(9)


@pytest.fixture
def renumbered(world: World) -> list[dict[str, object]]:
    """Changes the order of columns, so that ids are not positions. Returns the expected rows."""
    world.apply(a_table(iceberg="true", columns=FIRST))
    before = some_rows(2, utc(NOON), name="a", size=1)
    world.drop(before)
    world.stream(NOON)
    world.apply(a_table(iceberg="true", columns=OTHERS))
    after = some_rows(2, utc(NOON), name="b", size=2, colour="red")
    world.drop(after)
    world.stream(NOON)
    return [{"colour": None, **{key: row[key] for key in row if key != "time"}} for row in (*before, *after)]


def test_old_and_new_files_are_read_by_their_ids(world: World, renumbered: list[dict[str, object]]) -> None:
    attempt(world)
    assert read(world) == renumbered
    schema = world.iceberg_table().schema()
    assert [(field.name, field.field_id) for field in schema.fields] == [
        ("time", 1), ("id", 2), ("size", 4), ("colour", 5), ("name", 3), ("dt", 1_000_000),
    ]  # fmt: skip
    assert not any(field.required for field in schema.fields)


def test_the_library_gives_ids_of_its_own_to_a_table_that_it_makes(
    world: World, renumbered: list[dict[str, object]]
) -> None:
    """The naive way, for comparison: size would be read as name."""
    attempt(world)
    (table,) = world.context.choose_tables(["log.events"])
    with a_client(world) as (catalog, ours):
        namespace, name = ours.name()
        made = catalog.create_table((namespace, f"{name}_naive"), iceberg_schema(table), location=f"{ours.location()}x")
    assert [field.field_id for field in made.schema().fields] == [1, 2, 3, 4, 5, 6]
    assert len(renumbered) == 4


def test_columns_that_change_are_set_anew_in_the_commit_that_shows_their_rows(world: World) -> None:
    world.apply(a_table(iceberg="true", columns=FIRST))
    world.drop(some_rows(1, utc(NOON), name="a", size=1))
    world.stream(NOON)
    attempt(world)
    world.apply(a_table(iceberg="true", columns=OTHERS))
    world.drop(some_rows(1, utc(NOON), name="b", size=2, colour="red"))
    world.stream(NOON)
    metadata = len(world.iceberg_table().metadata.metadata_log)
    attempt(world)
    table = world.iceberg_table()
    assert len(table.metadata.metadata_log) == metadata + 1
    assert [snapshot.schema_id for snapshot in table.metadata.snapshots] == [0, 1]
    assert sorted(row["name"] for row in table.scan().to_arrow().to_pylist()) == ["a", "b"]
    assert not attempt(world).changed


def test_columns_that_change_without_rows_are_set_anew_by_a_commit_without_a_snapshot(world: World) -> None:
    world.apply(a_table(iceberg="true", columns=FIRST))
    attempt(world)
    world.apply(a_table(iceberg="true", columns=[*FIRST, "{name: colour, type: string}"]))
    report = attempt(world)
    assert report.commit is not None
    assert (report.commit.operation, report.commit.snapshot_id) == (None, None)
    assert "colour" in world.iceberg_table().schema().column_names
    assert not attempt(world).changed


def test_strangers_columns_are_taken_back(world: World) -> None:
    world.apply(a_table(iceberg="true"))
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    attempt(world)
    with a_client(world) as (_, table), table.update_schema() as update:
        update.add_column("theirs", StringType())
    attempt(world)
    fields = world.iceberg_table().schema().fields
    assert [(field.name, type(field.field_type)) for field in fields[:2]] == [
        ("time", TimestamptzType),
        ("id", LongType),
    ]
    assert len(fields) == 3
