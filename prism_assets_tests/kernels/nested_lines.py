"""Random tables with nested columns, and lines for them. Most parts fit; the others are of any form."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.parts import with_ids
from prism_assets.domain.columns.types import (
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    IntegerType,
    JsonType,
    ListType,
    MapType,
    RealType,
    SmallIntType,
    StringType,
    StructType,
    TimestampType,
)
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import FREEZE, Contract
from prism_assets_tests.kernels.builders import TIME, a_table

NAMES = ("a", "b", "aa", "long_name_of_a_field")
KEYS = (*NAMES, "A", "c", "\\u0061", "", "é", "\\u0000", "k" * 10)
_SOURCES: tuple[tuple[str, ...], ...] = (
    ("v",), ("v",), ("v",), ("w",), ("$.o.a",), ("v", "w"), ("$.o[1]", "w"), ("/^l/",), ("*",), ("@line",),
)  # fmt: skip
_ODD = ("null", "true", "NaN", "-Infinity", "0", "1e3", "70000", '"t"', '"é😀é😀"', "[]", "{}", "[[null]]", '{"a":1}')
_TIMES = (f'"{TIME}"', "1540339223.5", '"2018-10-24"', '"2018-10-24T09:00:23[Europe/Berlin]"', '"99999-01-01"', "1e17")


def a_nested_table(source: random.Random) -> TableDefinition:
    """Returns a table with one to three nested columns beside its time."""
    ids = itertools.count(100)
    columns = []
    for number in range(source.randint(1, 3)):
        kind = with_ids(_nested(source, 4), ids.__next__)
        name = f"c{number}"
        columns.append(Column(name=name, source=name, sources=source.choice(_SOURCES), type=kind, column_id=number + 2))
    source.shuffle(columns)
    contract = Contract(new_fields=FREEZE) if source.randrange(3) == 0 else Contract()
    return a_table(*columns, contract=contract)


def _nested(source: random.Random, depth: int) -> StructType | ListType | MapType:
    match source.randrange(4):
        case 0:
            return ListType(_part(source, "element", depth))
        case 1:
            length = source.choice((1, 3, 200, None))
            return MapType(Field(name="key", type=StringType(), length=length), _part(source, "value", depth))
    names = source.sample(NAMES, source.randint(1, len(NAMES)))
    return StructType(tuple(_part(source, name, depth, keys=True) for name in names))


def _part(source: random.Random, name: str, depth: int, *, keys: bool = False) -> Field:
    key = source.choice(KEYS) if keys and not source.randrange(4) else None
    if depth and source.randrange(2):
        return Field(name=name, type=_nested(source, depth - 1), source=key)
    kind: ColumnType = source.choice((
        StringType(), StringType(), JsonType(), BooleanType(), SmallIntType(), IntegerType(), BigIntType(), RealType(),
        DoubleType(), DecimalType(6, 2), TimestampType(), DateType(),
    ))  # fmt: skip
    length = source.choice((2, 7, None)) if kind.takes_length else None
    return Field(name=name, type=kind, source=key, length=length)


class NestedLines:
    """Makes lines for tables."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def line(self, table: TableDefinition) -> bytes:
        """Returns a line with values for the columns of a table."""
        kinds = [column.type for column in table.columns if column.type.parts]
        kind = self._source.choice(kinds)
        value = self._value(kind)
        fields = [("time", f'"{TIME}"'), ("v", value)]
        more: dict[str, Callable[[], str]] = {
            "w": lambda: self._value(self._source.choice(kinds)),
            "o": lambda: self._object([(self._source.choice(KEYS), self._value(kind)) for _ in range(2)]),
            "la": lambda: self._value(kind),
            "lb": lambda: self._source.choice(_ODD),
            "other": lambda: self._source.choice(_ODD),
        }
        fields += [(key, make()) for key, make in more.items() if not self._source.randrange(3)]
        self._source.shuffle(fields)
        return self._object(fields).encode()

    def _value(self, kind: ColumnType) -> str:
        source = self._source
        if not source.randrange(12):
            return source.choice(_ODD)
        match kind:
            case StructType(fields):
                members = [(part.source or part.name, self._value(part.type)) for part in fields if source.randrange(5)]
                if not source.randrange(8):
                    members.append((source.choice(KEYS), source.choice(_ODD)))
                if not source.randrange(6):
                    source.shuffle(members)
                return self._object(members)
            case ListType(element):
                return f"[{self._space()}{','.join(self._value(element.type) for _ in range(source.randrange(4)))}]"
            case MapType(_, value):
                keys = source.sample(KEYS, source.randrange(4))
                if source.randrange(9) == 0:
                    keys = [f"k{number}" for number in range(12)] + keys * 2
                return self._object([(key, self._value(value.type)) for key in keys])
            case TimestampType() | DateType():
                return source.choice(_TIMES)
            case StringType() | JsonType():
                return json.dumps(source.choice(("", "ab", "abc é", '\\"\n', "x" * 300)), ensure_ascii=False)
        return source.choice(("1", "-3", "true", "0.25", '"12"', "32768", "1e40"))

    def _object(self, members: list[tuple[str, str]]) -> str:
        inside = f",{self._space()}".join(f'"{key}"{self._space()}:{self._space()}{value}' for key, value in members)
        return f"{{{self._space()}{inside}}}"

    def _space(self) -> str:
        return "" if self._source.randrange(8) else " "
