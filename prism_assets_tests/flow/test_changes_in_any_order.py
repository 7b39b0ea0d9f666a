"""The real stages in any order again, while columns are renamed and widened, by copies or at once.

After each step a reader is judged who finds columns by Glue's names: he gets the value of each row, in a type never
wider than in Glue, and exactly Glue's type until a column is widened at once. In the end all columns have their names
and types, and the lake has no unneeded object.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from prism_assets.domain.columns import transitions as column_transitions
from prism_assets.domain.columns.transitions import MOST_UNCOPIED_TO_BEGIN
from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.reading.lake_reader import path_of
from prism_assets.reading.query import arrow_type
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.flow.any_order import play
from prism_assets_tests.flow.test_any_order import MERGE, TABLE
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.flow.test_garbage_in_any_order import GarbageInAnyOrder
from prism_assets_tests.reliability import Figures
from prism_assets_tests.stages.engines import expire_leases

TYPES = {"length": ("smallint", "integer", "bigint"), "price": ("real", "double")}
"""The fields of all lines, and the successive types of their columns."""
WHOLE = ("smallint", "integer", "bigint")
"""The successive types of each field of the column `shape`. Lines have the keys k0, k1, …, each with its own value."""
MOST_FIELDS = 6
WAYS = ("by copies", "by copies", "by copies", "at once")  # as most people will
MONTH = timedelta(days=31)


@dataclass(frozen=True)
class Part:
    """A field of the column `shape`. Objects and Glue have its first name, `k` and its number."""

    number: int
    renames: int = 0
    width: int = 0

    def __str__(self) -> str:
        names = [f"k{self.number}", *(f"k{self.number}_{count}" for count in range(1, self.renames + 1))]
        was = f"was: {names[-2]}, " if self.renames else ""
        return f"{{name: {names[-1]}, {was}source: k{self.number}, type: {WHOLE[self.width]}}}"


def values_of(number: int) -> dict[str, int]:
    """Returns the fields of a row. No two of them are equal."""
    return {f"k{place}": (number + place) % 1_000 for place in range(MOST_FIELDS + 1)}


class ChangesInAnyOrder(GarbageInAnyOrder):
    """Adds the columns' current names and types, the values of all rows, and the way of widening."""

    begin = utc("2020-03-01T10:00")
    """Many months before the database's clock, so columns do not run ahead."""
    monkeypatch: pytest.MonkeyPatch
    changes = 0

    def __init__(self) -> None:
        self.types = dict.fromkeys(TYPES, 0)
        self.names = {field: [field] for field in TYPES}
        self.values: dict[int, dict[str, Any]] = {}
        self.shape = [Part(0)]
        self._ever = [Part(0)]
        self.is_exact = True
        super().__init__()

    @initialize(
        most=st.sampled_from([0, MOST_UNCOPIED_TO_BEGIN]),
        field=st.sampled_from(sorted(TYPES)),
        way=st.sampled_from([*WAYS, "by a name"]),
    )
    def a_column_begins_to_change(self, most: int, field: str, way: str) -> None:
        """A flip begins when so many objects have no copy yet."""
        self.monkeypatch.setattr(column_transitions, "MOST_UNCOPIED_TO_BEGIN", most)
        self.the_day_ends(1)
        if way in WAYS:
            self.a_column_is_widened(field, way)
        else:
            self.a_column_is_renamed(field)

    @rule(field=st.sampled_from(sorted(TYPES)), way=st.sampled_from(WAYS))
    def a_column_is_widened(self, field: str, way: str) -> None:
        before = self.types[field]
        self.types[field] = min(before + 1, len(TYPES[field]) - 1)
        if not self._is_taken(at_once=way == "at once"):
            self.types[field] = before

    @rule(field=st.sampled_from(sorted(TYPES)), runs=st.booleans())
    def a_column_is_widened_and_merged(self, field: str, runs: bool) -> None:
        self.a_column_is_widened(field, "by copies")
        self._merge()
        if runs:
            self.all_stages_run(1)

    @rule(field=st.sampled_from(sorted(TYPES)))
    def a_column_is_renamed(self, field: str) -> None:
        self.names[field].append(f"{field}_{len(self.names[field])}")
        if not self._is_taken():
            self.names[field].pop()

    @rule(change=st.sampled_from(["add", "add", "drop", "rename", "widen", "reorder"]), place=st.integers(0, 5))
    def a_field_changes(self, change: str, place: int) -> None:
        """The first field stays, so that readers by name find a value of every row."""
        before = list(self.shape)
        chosen = self.shape[place % len(self.shape)]
        match change:
            case "add" if (number := max(part.number for part in self._ever)) < MOST_FIELDS:
                self.shape.append(Part(number + 1))
            case "drop" if chosen.number:
                self.shape.remove(chosen)
            case "rename":
                self.shape = [replace(part, renames=part.renames + (part is chosen)) for part in self.shape]
            case "widen":
                self.shape = [replace(part, width=min(2, part.width + (part is chosen))) for part in self.shape]
            case "reorder":
                self.shape.reverse()
        if self._is_taken():
            self._ever += self.shape
        else:
            self.shape = before

    @invariant()
    def no_struct_of_a_day_is_longer_in_glue_than_that_of_the_table(self) -> None:
        shown = arrow_type(dict(self.world.reader().table(TABLE).columns)["shape"])
        names = [field.name for field in shown]
        for kind in self._shapes_of_days():
            inside = [field.name for field in arrow_type(kind)]
            assert inside == names[: len(inside)], f"a day has {kind}, and the table {', '.join(names)}"

    def _shapes_of_days(self) -> set[str]:
        """Returns the types of the column in the partitions of Glue."""
        schema, name = TABLE.split(".")
        database = f"{self.world.settings.glue_database_prefix}{schema}"
        days = self.world.glue._client.get_partitions(DatabaseName=database, TableName=name)["Partitions"]
        columns = (column for day in days for column in day["StorageDescriptor"]["Columns"])
        return {column["Type"] for column in columns if column["Name"] == "shape"}

    @rule()
    def a_month_passes(self) -> None:
        self._stream()  # days are accepted by when their objects arrived
        self.now += MONTH
        self._begin_day()

    @rule(uploads=st.sampled_from([True, True, False]), days_ago=st.sampled_from([0, 0, 1]))
    def a_worker_claims_and_stands_still(self, uploads: bool, days_ago: int) -> None:
        if not self._table.is_flipping:  # as no batch begins then
            super().a_worker_claims_and_stands_still(uploads, days_ago)

    @rule(minutes=st.sampled_from([1, 1, 70]))
    def all_stages_run(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        self._stream()
        self._merge()
        self._catalog()

    @invariant()
    def a_reader_by_name_finds_each_value_as_what_glue_says(self) -> None:
        reader = self.world.reader()
        table = reader.table(TABLE)
        shown = {name: arrow_type(kind) for name, kind in table.columns}
        fields = {name: field for field, names in self.names.items() for name in names if name in shown}
        assert set(fields.values()) == set(TYPES), f"Glue shows {', '.join(shown)}"
        for partition in table.partitions:
            for item in partition.objects:
                found = pq.read_table(path_of(item.url), filesystem=reader.filesystem, partitioning=None)
                for name, field in fields.items():
                    self._check_column(found, name, field, shown[name], f"{name} of {item.url}")
                self._check_fields(found, item.url)

    def _check_fields(self, found: pa.Table, url: str) -> None:
        """A field has its own value, or null in rows of definitions without it. The first field is in all of them."""
        for row in found.select(["id", "shape"]).to_pylist():
            wanted = values_of(row["id"])
            assert all(value in (None, wanted[name]) for name, value in row["shape"].items()), url
            assert row["shape"]["k0"] == wanted["k0"], url

    def _check_column(self, found: pa.Table, name: str, field: str, shown: pa.DataType, what: str) -> None:
        kind = found.schema.field(name).type
        assert kind.bit_width <= shown.bit_width, f"{what} is {kind}, and Glue says {shown}"
        assert kind == shown or not self.is_exact, f"{what} is {kind}, and Glue says {shown}"
        wanted = [self.values.get(row, {}).get(field) for row in found.column("id").to_pylist()]
        assert found.column(name).to_pylist() == wanted, f"{what} has other values"

    @property
    def _table(self) -> TableDefinition:
        (table,) = self.world.context.choose_tables([TABLE])
        return table

    def _is_taken(self, *, at_once: bool = False) -> bool:
        """Applies the current file. Returns False if the file is refused for now."""
        version = self._table.version
        with suppress(DefinitionError):
            self.world.apply(self._file(), now=self._clock, accept_failing_reads=at_once)
            self.is_exact &= not (at_once and any(column.widening for column in self._table.columns))
            type(self).changes = type(self).changes + (self._table.version > version)
            return True
        return False

    def _file(self) -> str:
        columns = []
        for field, names in self.names.items():
            was = f", was: {names[-2]}" if len(names) > 1 else ""
            kind = TYPES[field][self.types[field]]
            columns.append(f"{{name: {names[-1]}, type: {kind}, source: {field}{was}}}")
        shape = f"{{name: shape, type: struct, fields: [{', '.join(map(str, self.shape))}]}}"
        return a_table(TABLE, columns=[*columns, shape, *self._columns], merge=MERGE)

    def _apply(self) -> None:
        assert self.world.apply(self._file(), now=self._clock).problems == ()

    def _drop(self, count: int, days_ago: int, broken: int) -> str:
        start = self.now - timedelta(days=days_ago)
        rows = [
            row | {"length": row["id"] % 100, "price": row["id"] % 7 / 4, "shape": values_of(row["id"])}
            for row in some_rows(count, start)
        ]
        self.values |= {row["id"]: row for row in rows}
        self.dropped[start.date()] |= {row["id"] for row in rows}
        self.broken += broken
        return self.world.drop([], body=self._body(rows, broken))

    def _catalog(self) -> None:
        """A table with columns changing in the same run takes more steps than announced for its days."""
        (report,) = self.world.catalog_and_idle(self._clock).tables
        assert report.problems == ()

    def _come_to_rest(self) -> None:
        # A worker that stands still keeps its objects under their definition, and a change waits for them.
        expire_leases(self.world)
        for _ in range(9):
            if not any(column.rename or column.widening for column in self._table.columns):
                break
            for _ in range(4):
                self.all_stages_run(1)
            self.now += MONTH
        assert not any(column.rename or column.widening for column in self._table.columns)
        with self.world.context.database.begin() as connection:  # as if copies had taken their place long ago
            connection.exec_driver_sql("UPDATE prism_merge_ranges SET update_time = '2020-01-01'")
        super()._come_to_rest()
        self.is_exact = True
        self.a_reader_by_name_finds_each_value_as_what_glue_says()


def test_columns_that_change_in_any_order_are_read_by_name_as_they_are(
    services: Mapping[str, str], database_url: str, monkeypatch: pytest.MonkeyPatch, long: bool, figures: Figures
) -> None:
    played = play(
        ChangesInAnyOrder,
        services,
        database_url,
        figures,
        examples=100 if long else 2,
        long=long,
        world_settings=lambda _number: {"gc_max_fraction": 1.0, "quarantine_days": 36_500},
        monkeypatch=monkeypatch,
    )
    assert played.machine.changes >= played.worlds
