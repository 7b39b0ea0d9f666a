"""The view of readers of an Iceberg table, from the first object of a day to its merged ranges and late rows."""

from __future__ import annotations

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

TABLE = a_table(iceberg="true")


def dropped(world: World, count: int, start: str) -> list[int]:
    rows = some_rows(count, utc(start))
    world.drop(rows)
    return [row["id"] for row in rows]


def test_rows_of_an_open_day_are_read_after_one_commit(world: World) -> None:
    world.apply(TABLE)
    ids = dropped(world, 5, "2026-03-01T10:00")
    world.stream("2026-03-01T10:05")

    report = world.iceberg("2026-03-01T10:06").tables[0]

    assert report.created
    assert report.commit is not None
    assert (report.commit.operation, report.commit.files_in, report.commit.rows_in) == ("append", 1, 5)
    assert world.iceberg_ids() == ids


def test_a_day_shows_the_same_rows_at_every_step_of_its_life(world: World) -> None:
    world.apply(TABLE)
    ids: list[int] = []
    for minute in (0, 10, 20):
        ids += dropped(world, 4, f"2026-03-01T10:{minute:02}")
        world.stream(f"2026-03-01T10:{minute + 1:02}")
        world.iceberg(f"2026-03-01T10:{minute + 2:02}")
        assert world.iceberg_ids() == ids
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T01:00", everything=True)
    merged = world.iceberg("2026-03-02T01:01").tables[0].commit
    assert merged is not None
    assert (merged.operation, merged.files_in, merged.files_out) == ("replace", 1, 3)
    assert world.iceberg_ids() == ids
    world.catalog("2026-03-02T01:10")
    assert world.iceberg("2026-03-02T01:11").changed is False
    ids += dropped(world, 2, "2026-03-01T23:00")
    world.stream("2026-03-02T02:00")
    world.iceberg("2026-03-02T02:01")
    assert world.iceberg_ids() == ids
    world.catalog("2026-03-02T02:10")
    assert world.ids() == ids


def test_a_run_with_nothing_new_commits_nothing(world: World) -> None:
    world.apply(TABLE)
    dropped(world, 5, "2026-03-01T10:00")
    world.stream("2026-03-01T10:05")
    world.iceberg("2026-03-01T10:06")
    before = world.iceberg_table().metadata_location

    assert world.iceberg("2026-03-01T10:07").changed is False
    assert world.iceberg_table().metadata_location == before


def test_columns_keep_the_ids_that_the_files_have_and_the_day_is_a_column(world: World) -> None:
    world.apply(a_table(iceberg="true", columns=["{name: name, type: string}"]))
    dropped(world, 1, "2026-03-01T10:00")
    world.stream("2026-03-01T10:05")
    world.iceberg("2026-03-01T10:06")

    table = world.iceberg_table()

    assert {field.name: field.field_id for field in table.schema().fields} == {
        "time": 1, "id": 2, "name": 3, "dt": 1_000_000,
    }  # fmt: skip
    assert table.scan(row_filter="dt = '2026-03-01'").to_arrow().num_rows == 1
    assert table.scan(row_filter="dt = '2026-03-02'").to_arrow().num_rows == 0
    assert table.scan(row_filter="time > '2026-03-01T11:00:00+00:00'").to_arrow().num_rows == 0
