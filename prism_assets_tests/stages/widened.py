"""A table with widening columns, its arrivals, and the view of its readers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq
import pytest

from prism_assets import failpoints
from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.type_names import parse_type
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.publishers.iceberg.schema import iceberg_type
from prism_assets.reading.query import arrow_type
from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.merge.report import MergeReport
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.findings import says
from prism_assets_tests.stages.seen_columns import MERGE, NIGHT, NOON, look, publish
from prism_assets_tests.world import World

NEXT = "2026-03-02T09:00"
WIDENED, LATER, EVENING = "2026-03-02T10:00", "2026-03-02T11:00", "2026-03-02T19:00"
SECOND_NIGHT, ENDED, AFTER = "2026-03-03T00:30", "2026-03-03T01:00", "2026-03-03T09:00"
COLUMNS = ("size", "price", "cost")
NARROW = {"size": "integer", "price": "real", "cost": "decimal(6,2)"}
WIDE = {"size": "bigint", "price": "double", "cost": "decimal(10,2)"}
BIG, LONG = 3_000_000_000, Decimal("12345678.90")
"""What a narrow column cannot hold."""


def a_file(types: dict[str, str], *more: str, rename: str = "") -> str:
    columns = [f"{{name: {name}, type: '{kind}'}}" for name, kind in types.items()]
    if rename:
        columns[0] = columns[0].replace("{name: size", f"{{name: {rename}, was: size")
    metrics = "[time, size, price, cost]" if not rename else "[time, price, cost]"
    return a_table(columns=[*columns, *more], merge=MERGE, iceberg=f"{{metrics: {metrics}}}")


def drop(world: World, *, at: str = NOON, wide: bool = False) -> list[dict[str, Any]]:
    """Drops an object of three rows. Returns their values in a narrow or a wide column."""
    sent: list[dict[str, Any]] = [
        {"size": 7, "price": 0.1, "cost": "12.34"},
        {"size": None, "price": None, "cost": None},
        {"size": BIG, "price": 0.25, "cost": str(LONG)},
    ]
    rows = [row | values for row, values in zip(some_rows(3, utc(at)), sent, strict=True)]
    world.drop(rows)
    price = 0.1 if wide else struct.unpack("f", struct.pack("f", 0.1))[0]
    held: list[dict[str, Any]] = [
        {"size": 7, "price": price, "cost": Decimal("12.34")},
        {"size": None, "price": None, "cost": None},
        {"size": BIG if wide else None, "price": 0.25, "cost": LONG if wide else None},
    ]
    return [row | values for row, values in zip(rows, held, strict=True)]


def arrive(world: World, now: str = NOON, *, at: str = NOON, wide: bool = False) -> list[dict[str, Any]]:
    rows = drop(world, at=at, wide=wide)
    world.stream(now)
    return rows


def ask(world: World, types: dict[str, str] = WIDE, *, now: str = WIDENED, **file: Any) -> tuple[str, ...]:
    """Applies wider types, not yet shown by any catalog."""
    return world.apply(a_file(types, **file), now=now, accept_failing_reads=True).lines


def widen(world: World, types: dict[str, str] = WIDE, *, now: str = WIDENED, **file: Any) -> tuple[str, ...]:
    """Objects have wider types from now on, as every catalog shows them."""
    lines = ask(world, types, now=now, **file)
    world.catalog(now)
    assert not any(column.widening and column.widening.shown_first for column in definition(world).columns)
    return lines


def see(world: World, rows: Sequence[dict[str, Any]], types: dict[str, str], *failing: str) -> None:
    """Checks that all readers see the rows with these types. Strict readers may fail on the given days."""
    look(world, rows, *types)
    shown = dict(world.reader().table("log.events").columns)
    wanted = {name: Column(name=name, type=parse_type(kind), source=name) for name, kind in types.items()}
    assert {name: shown[name] for name in types} == {name: column.glue_type for name, column in wanted.items()}
    schema = world.iceberg_table().schema()
    assert {name: str(schema.find_type(name)) for name in types} == {
        name: iceberg_type(column.type) for name, column in wanted.items()
    }
    assert strict(world, rows, types) == list(failing)


def strict(world: World, rows: Sequence[dict[str, Any]], types: dict[str, str], database: str = "log") -> list[str]:
    """Returns the days on which a reader with Glue's exact types fails. Its other values are right."""
    failing = []
    wanted = {row["id"]: row for row in rows}
    table = world.reader().table(f"{database}.events")
    said = {name: arrow_type(kind) for name, kind in table.columns if name in types}
    for day in table.partitions:
        for item in day.objects:
            found = pq.read_table(str(world.root / "buckets" / item.url.removeprefix("s3://")))
            if any(found.schema.field(name).type != kind for name, kind in said.items()):
                failing.append(str(day.date))
                continue
            for row in found.select(["id", *types]).to_pylist():
                assert row == {name: wanted[row["id"]][name] for name in row}
    return sorted(set(failing))


def said(world: World, now: str, column: str = "size") -> str:
    """Returns the rest of a column's widening, as shown to everybody."""
    (status,) = read_status(world.context, now=utc(now))
    told = {text.split()[1]: text for text in says(status.findings, "column_transition")}
    steps = [str(step) for step in preview(world.context, now=utc(now))]
    assert all(any(line in step for step in steps) for line in told.values())
    return told.get(column, "")


def plans(report: MergeReport) -> list[str]:
    assert report.errors == ()
    return [item.plan.partition(": ")[2] for item in report.merged if item.sizes]


def definition(world: World) -> TableDefinition:
    (table,) = world.context.choose_tables(["log.events"])
    return table


def widenings(world: World, *, shown: bool = True) -> list[str]:
    """Returns columns whose wider type is shown before all objects have it, and columns waiting to be shown."""
    found = [column for column in definition(world).columns if column.widening]
    return [item.name for item in found if item.widening and (item.widening.shown_first is None) is shown]


def die(monkeypatch: pytest.MonkeyPatch, point: str, do: Any) -> None:
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=1*raise(InjectedFault)"))
    with suppress(failpoints.InjectedFault):
        do()
    monkeypatch.setattr(failpoints, "_POINTS", {})


def closed_day(world: World, types: dict[str, str] = NARROW) -> list[dict[str, Any]]:
    """A merged, switched and shown day of a table with these columns."""
    world.apply(a_file(types))
    rows = arrive(world)
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    return rows


@pytest.fixture
def rows(world: World) -> list[dict[str, Any]]:
    """A merged and switched day, and an open one, of a table with narrow columns."""
    world.apply(a_file(NARROW))
    found = [*arrive(world), *arrive(world)]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    found += arrive(world, NEXT, at=NEXT)
    publish(world, NEXT)
    return found


def states(world: World) -> set[str]:
    """Returns the states of the widened columns."""
    return {str(column.widening.state) for column in definition(world).columns if column.widening}


def flip(world: World, rows: list[dict[str, Any]], *, minutes: int = 9) -> int:
    """Runs all stages every minute until all columns have their types, with a check before each.

    Returns the minutes.
    """
    for minute in range(minutes):
        now = f"2026-03-02T11:{minute:02}"
        see(world, rows, NARROW)
        assert world.merge(now).errors == ()
        publish(world, now)
        if not states(world):
            see(world, rows, WIDE)
            return minute + 1
    raise AssertionError(said(world, now))
