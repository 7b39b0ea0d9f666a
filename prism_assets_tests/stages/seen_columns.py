"""A table with changing columns, and the view of its readers: by name in Glue, by id in Iceberg."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.kernels.field_ids import field_id
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON, LATER = f"{DAY}T12:00", f"{DAY}T13:00"
NIGHT, MORNING, EVENING = "2026-03-02T00:30", "2026-03-02T09:00", "2026-03-02T19:00"
COLOR, SIZE = "{name: color, type: string, length: 20}", "{name: size, type: bigint}"
MERGE = "{interval: 0, target_bytes: 100000}"
COLORS = ("red", "green", None, "blue")
HUE = "{name: hue, type: string, length: 20, was: color}"


def events(*columns: str) -> str:
    return a_table(columns=columns, merge=MERGE, iceberg="true")


def arrive(world: World, now: str = NOON, *, at: str = NOON) -> list[dict[str, Any]]:
    """An object of four rows with all fields."""
    made = zip(some_rows(len(COLORS), utc(at)), COLORS, strict=True)
    rows = [row | {"color": color, "size": number} for number, (row, color) in enumerate(made)]
    world.drop(rows)
    world.stream(now)
    return rows


def a_switched_day(world: World) -> list[dict[str, Any]]:
    """The rows of two merged objects of a table with a color and a size, shown everywhere."""
    world.apply(events(COLOR, SIZE))
    rows = [*arrive(world), *arrive(world)]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    return rows


def publish(world: World, now: str) -> None:
    world.catalog(now)
    world.iceberg(now)


def look(world: World, rows: Sequence[dict[str, Any]], *columns: str, **by_id: str) -> None:
    """Checks that readers by name and by id see exactly these columns, and each row once with its values.

    `by_id` has other names for readers by id; an empty one means no name.
    """
    wanted = {row["id"]: tuple(row[column] for column in columns) for row in rows}
    names = ["id", *columns]
    found = world.reader().table("log.events")
    assert [name for name, _ in found.columns] == ["time", *names]
    assert each_once(world.query(f"SELECT {', '.join(names)} FROM log.events")) == wanted
    assert each_once(by_name_alone(world, names)) == wanted
    columns = tuple(column for column in columns if by_id.get(column, column))
    wanted = {row["id"]: tuple(row[column] for column in columns) for row in rows}
    names = ["id", *(by_id.get(column, column) for column in columns)]
    listed = world.iceberg_table().scan().to_arrow()
    assert listed.column_names == ["time", *names, "dt"]
    assert each_once([tuple(row.values()) for row in listed.select(names).to_pylist()]) == wanted


def each_once(found: Sequence[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """Rows by their ids."""
    rows = {number: tuple(values) for number, *values in found}
    assert len(rows) == len(found), "rows are seen twice"
    return rows


def by_name_alone(world: World, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Reads Glue's objects with DuckDB, which knows no ids."""
    paths = [
        str(world.root / "buckets" / item.url.removeprefix("s3://"))
        for partition in world.reader().table("log.events").partitions
        for item in partition.objects
    ]
    with duckdb.connect() as connection:
        said = ", ".join(f"NULL AS {name}" for name in names)
        objects = "SELECT * FROM read_parquet($1, union_by_name = true, hive_partitioning = false)"
        query = f"SELECT {', '.join(names)} FROM ({objects} UNION ALL BY NAME SELECT {said} WHERE false)"
        return connection.execute(query, [paths]).fetchall()


def columns_of(world: World, key: str) -> dict[str, int]:
    """Returns the columns of an object: names with their ids."""
    schema = pq.read_schema(io.BytesIO(world.context.stores.get("lake", key)))
    return {field.name: field_id(field) for field in schema}


def merged(world: World) -> str:
    """Returns the key of the single merged object for readers."""
    (item,) = world.partition(DAY).objects
    return item.url.removeprefix("s3://lake/")


def refusal(world: World, *texts: str) -> str:
    """Returns the message of `prism table apply` about columns of a refused file, after its first place."""
    with pytest.raises(DefinitionError) as raised:
        world.apply(*texts)
    return re.split(r": columns(?:\[\d+\]\.name)?: ", str(raised.value), maxsplit=1)[1]
