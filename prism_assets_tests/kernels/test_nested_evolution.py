"""Merges of objects from before and after random changes inside nested columns: every value keeps its id."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from prism_assets.domain.columns.part_changes import HeldParts, continued, part_problems
from prism_assets.domain.columns.parts import with_ids
from prism_assets.domain.columns.types import (
    BigIntType,
    ColumnType,
    DoubleType,
    Field,
    IntegerType,
    ListType,
    MapType,
    RealType,
    SmallIntType,
    StringType,
    StructType,
)
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.field_ids import field_id
from prism_assets.kernels.parquet import merge_inputs
from prism_assets.kernels.parquet.compiled_inputs import CompiledInputs
from prism_assets_tests.kernels.builders import Lake, a_table, an_object
from prism_assets_tests.kernels.test_nested import a_nested

WIDER: dict[type, ColumnType] = {SmallIntType: IntegerType(), IntegerType: BigIntType(), RealType: DoubleType()}
LEAVES: Sequence[ColumnType] = (SmallIntType(), IntegerType(), RealType(), StringType())


class Evolution:
    """A nested column that changes at random, under the code that `prism table apply` runs."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._names = (f"f{number}" for number in itertools.count())
        self._ids = itertools.count(100)
        self.kind = with_ids(self._struct(3), self._next_id)

    def change(self) -> None:
        """Changes the column, as one run of apply does."""
        wanted = self._changed(self.kind)
        assert list(part_problems("v", wanted, self.kind, HeldParts(2, "log.events", {}))) == []
        self.kind = with_ids(continued(wanted, self.kind), self._next_id)

    def table(self) -> TableDefinition:
        column = a_nested("v", "struct<a: bigint>", 2)
        return a_table(replace(column, type=self.kind))

    def value(self, kind: ColumnType) -> Any:
        """Returns a random JSON value of a type."""
        draw = self.draw
        if draw.random() < 0.2:
            return None
        match kind:
            case StructType(fields):
                return {part.source: self.value(part.type) for part in fields}
            case ListType(element):
                return [self.value(element.type) for _ in range(draw.randrange(3))]
            case MapType(_, value):
                return {key: self.value(value.type) for key in draw.sample("abc", draw.randrange(3))}
            case StringType():
                return draw.choice(["", "x", "yy"])
            case RealType() | DoubleType():
                return draw.randrange(9) / 4
        return draw.randrange(-5, 5)

    def _next_id(self) -> int:
        return next(self._ids)

    def _struct(self, levels: int) -> StructType:
        return StructType(tuple(self._field(levels - 1) for _ in range(self.draw.randrange(1, 4))))

    def _field(self, levels: int) -> Field:
        name = next(self._names)
        return Field(name=name, source=name, **self._kind(levels))

    def _kind(self, levels: int) -> dict[str, Any]:
        draw = self.draw
        if levels == 0 or draw.random() < 0.5:
            kind = draw.choice(LEAVES)
            return {"type": kind, "length": 9 if kind.takes_length else None}
        inner = self._struct(levels)
        key = Field(name="key", type=StringType(), length=9)
        wrapped = [inner, ListType(Field(name="element", type=inner)), MapType(key, Field(name="value", type=inner))]
        return {"type": draw.choice(wrapped)}

    def _changed(self, kind: Any) -> Any:
        """Returns a type as a file has it: without ids, with `was` for renamed fields."""
        match kind:
            case StructType(fields):
                parts = [self._changed_field(part) for part in fields]
                if len(parts) > 1 and self.draw.random() < 0.3:
                    parts.pop(self.draw.randrange(len(parts)))
                if self.draw.random() < 0.4:
                    parts.append(self._field(1))
                self.draw.shuffle(parts)
                return StructType(tuple(parts))
            case ListType(element):
                return ListType(replace(element, type=self._changed(element.type), field_id=0))
            case MapType(key, value):
                return MapType(replace(key, field_id=0), replace(value, type=self._changed(value.type), field_id=0))
        return WIDER.get(type(kind), kind) if self.draw.random() < 0.2 else kind

    def _changed_field(self, part: Field) -> Field:
        name, was = part.name, None
        if self.draw.random() < 0.3:
            name, was = next(self._names), part.name
        kind = self._changed(part.type)
        return replace(part, name=name, was=was, type=kind, field_id=0, stored_as=None, in_place_of=0)


def by_id(value: Any, kind: pa.DataType) -> Any:
    """Returns a value with ids in the place of names, without nulls of structs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        parts = ((field_id(part), by_id(value[part.name], part.type)) for part in kind)
        return {number: item for number, item in parts if item is not None}
    if pa.types.is_map(kind):
        return [(key, by_id(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind):
        return [by_id(item, kind.value_type) for item in value]
    return value


def values_in(table: pa.Table) -> Iterator[str]:
    kind = table.schema.field("v").type
    return (json.dumps(by_id(value, kind), sort_keys=True) for value in table.column("v").to_pylist())


@pytest.mark.parametrize("seed", range(12))
def test_merged_objects_have_the_values_of_every_definition_by_id(tmp_path: Path, seed: int) -> None:
    lake, evolution = Lake(tmp_path), Evolution(seed)
    inputs, expected = list[DataFile](), list[str]()
    for number in range(1, 7):
        rows = [{"v": evolution.value(evolution.kind)} for _ in range(20)]
        converted = lake.convert(an_object(*rows), evolution.table(), staging_object_id=number).result.objects
        inputs += converted
        expected += [text for item in converted for text in values_in(lake.table_at(item.key))]
        evolution.change()
    written = lake.merge(inputs, evolution.table()).written
    assert written is not None
    assert written.fingerprint == combine(item.fingerprint for item in inputs)
    assert sorted(values_in(lake.table_at(written.key))) == sorted(expected)


def test_a_merge_that_matched_fields_by_name_would_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The null control of the fingerprint: Arrow's cast reads null for a renamed field."""
    lake = Lake(tmp_path)
    before = a_table(a_nested("v", "struct<a: bigint, b: bigint>", 2))
    (column,) = (column for column in before.columns if column.name == "v")
    a, b = column.type.parts
    other = StructType((replace(a, name="c"), replace(b, name="a")))  # as if names in objects followed a rename
    after = a_table(replace(column, type=other))
    (first,) = lake.convert(an_object({"v": {"a": 1, "b": 2}}), before, staging_object_id=1).result.objects
    (second,) = lake.convert(an_object({"v": {"a": 3, "b": 4}}), before, staging_object_id=2).result.objects
    assert lake.merge([first, second], after).failure is None

    def cast(array: Any, kind: pa.DataType) -> Any:
        return array.cast(kind)

    monkeypatch.setattr(merge_inputs, "conformed", cast)
    monkeypatch.setattr(CompiledInputs, "nested", lambda *_: None)  # the kernel matches by id alone
    refused = lake.merge([first, second], after, key="p/merged/other.parquet").failure
    assert refused is not None
    assert "its rows are not those of its inputs" in refused.message
