"""The types that a column may have, one class each: what they are called everywhere, and what they take.

A type is what never changes about a column. How long its texts may be and how its times are written may change, and
stands at the column. What becomes of JSON values, and the Arrow type they are stored as, is in `kernels/type_rules.py`.
A new type is a class here, its name in `ColumnType`, and its rules there: CONTRIBUTING.md goes through it.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, get_args

from prism_assets.domain.names import did_you_mean

_WRITTEN = re.compile(r"(\w+)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_IN_GLUE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")


MILLISECONDS, MICROSECONDS = 1, 2
"""File formats: the unit in which an object stores its timestamps, whose values are whole milliseconds in either."""
FILE_FORMATS = {MICROSECONDS: "microseconds", MILLISECONDS: "milliseconds"}
"""Their names in table files."""


@dataclass(frozen=True)
class _Type(ABC):
    """What a type says of itself. Fields, where it has any, are what it takes in brackets: its parameters."""

    takes_length: ClassVar[bool] = False
    """Whether a column of this type has a `length`."""
    takes_time_options: ClassVar[bool] = False
    """Whether `source_offset` and `time_unit` say how its values are read."""
    may_partition: ClassVar[bool] = False
    """Whether a column of this type may say on which day a row falls."""

    @property
    @abstractmethod
    def keyword(self) -> str:
        """Its name in table files and in stored definitions; like the next two, without what it took in brackets."""

    @property
    @abstractmethod
    def in_glue(self) -> str:
        """Its name in Glue and Hive."""

    @property
    @abstractmethod
    def in_iceberg(self) -> str:
        """Its name in the schema of an Iceberg table."""

    @property
    def parameters(self) -> Mapping[str, int]:
        """What it took in brackets, by name."""
        return vars(self)

    @property
    def problem(self) -> str | None:
        """What is wrong with the parameters, if anything is."""
        return None

    @property
    def name(self) -> str:
        """The whole name, as PostgreSQL lists it for each column: `bigint`, `decimal(10,2)`."""
        return self._in_brackets(self.keyword)

    @property
    def iceberg_type(self) -> str:
        """What a schema of Iceberg says: `long`, `decimal(10, 2)`."""
        return self._in_brackets(self.in_iceberg, ", ")

    def glue_type(self, length: int | None) -> str:
        """What Glue says of a column with this length: `bigint`, `decimal(10,2)`, `varchar(2000)`."""
        return f"{self.in_glue}({length})" if self.takes_length else self._in_brackets(self.in_glue)

    def widens_to(self, other: _Type) -> bool:
        """Whether each value of it is one of the other type, and nothing but the width differs."""
        return False

    def _in_brackets(self, name: str, between: str = ",") -> str:
        values = between.join(map(str, self.parameters.values()))
        return f"{name}({values})" if values else name

    def __str__(self) -> str:
        return self.keyword


@dataclass(frozen=True)
class StringType(_Type):
    """Text; what is longer than the column's length is cut."""

    keyword = "string"
    in_glue = "varchar"
    in_iceberg = "string"
    takes_length = True


@dataclass(frozen=True)
class BooleanType(_Type):
    """True or false."""

    keyword = "boolean"
    in_glue = "boolean"
    in_iceberg = "boolean"


@dataclass(frozen=True)
class WholeNumberType(_Type):
    """What the types of whole numbers have in common."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """How many bits a number has, with its sign."""

    def widens_to(self, other: _Type) -> bool:
        """To more bits."""
        return isinstance(other, WholeNumberType) and self.bits < other.bits

    @property
    def lowest(self) -> int:
        """The least number that fits."""
        return -(1 << (self.bits - 1))

    @property
    def highest(self) -> int:
        """The greatest number that fits."""
        return (1 << (self.bits - 1)) - 1


@dataclass(frozen=True)
class SmallIntType(WholeNumberType):
    """Whole numbers of 16 bits."""

    keyword = "smallint"
    in_glue = "smallint"
    in_iceberg = "int"
    bits = 16


@dataclass(frozen=True)
class IntegerType(WholeNumberType):
    """Whole numbers of 32 bits."""

    keyword = "integer"
    in_glue = "int"
    in_iceberg = "int"
    bits = 32


@dataclass(frozen=True)
class BigIntType(WholeNumberType):
    """Whole numbers of 64 bits."""

    keyword = "bigint"
    in_glue = "bigint"
    in_iceberg = "long"
    bits = 64


@dataclass(frozen=True)
class RealType(_Type):
    """Numbers of single precision."""

    keyword = "real"
    in_glue = "float"
    in_iceberg = "float"

    def widens_to(self, other: _Type) -> bool:
        """To double precision."""
        return isinstance(other, DoubleType)


@dataclass(frozen=True)
class DoubleType(_Type):
    """Numbers of double precision."""

    keyword = "double"
    in_glue = "double"
    in_iceberg = "double"


@dataclass(frozen=True)
class DecimalType(_Type):
    """Exact numbers of at most `precision` digits, `scale` of which stand behind the point."""

    precision: int
    scale: int

    keyword = "decimal"
    in_glue = "decimal"
    in_iceberg = "decimal"

    @property
    def problem(self) -> str | None:
        """More than 38 digits do not fit the 128 bits in which decimals are stored."""
        fits = 1 <= self.precision <= 38 and self.scale <= self.precision
        return None if fits else "decimal(p, s) needs 1 <= p <= 38 and s <= p"

    def widens_to(self, other: _Type) -> bool:
        """To more digits before the point."""
        return isinstance(other, DecimalType) and self.scale == other.scale and self.precision < other.precision


@dataclass(frozen=True)
class TimestampType(_Type):
    """Instants, to the millisecond."""

    keyword = "timestamp"
    in_glue = "timestamp"
    in_iceberg = "timestamptz"
    takes_time_options = True
    may_partition = True


@dataclass(frozen=True)
class DateType(_Type):
    """Days; an instant counts as the day on which it falls in the table's zone."""

    keyword = "date"
    in_glue = "date"
    in_iceberg = "date"
    takes_time_options = True
    may_partition = True


@dataclass(frozen=True)
class JsonType(_Type):
    """Any JSON value, as its text; there is none if that is longer than the column's length."""

    keyword = "json"
    in_glue = "varchar"
    in_iceberg = "string"
    takes_length = True


ColumnType = (
    StringType
    | BooleanType
    | SmallIntType
    | IntegerType
    | BigIntType
    | RealType
    | DoubleType
    | DecimalType
    | TimestampType
    | DateType
    | JsonType
)
"""All types, so that the type checker finds a type that a `match` forgets; messages list them in this order."""

COLUMN_TYPES: Sequence[type[ColumnType]] = get_args(ColumnType)

_BY_KEYWORD: Mapping[str, type[ColumnType]] = {kind.keyword: kind for kind in COLUMN_TYPES}
# Of types that are stored alike, the first is the one that readers see.
_BY_GLUE_NAME: Mapping[str, type[ColumnType]] = {kind.in_glue: kind for kind in reversed(COLUMN_TYPES)}

_NAMES_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("char", "character", "str", "text", "uuid", "varchar"), "string"),
    "bool": "boolean",
    **dict.fromkeys(("int16", "int2", "short", "tinyint"), "smallint"),
    **dict.fromkeys(("int", "int32", "int4"), "integer"),
    **dict.fromkeys(("int64", "int8", "long"), "bigint"),
    **dict.fromkeys(("float", "float4", "float32"), "real"),
    **dict.fromkeys(("float8", "float64", "number"), "double"),
    **dict.fromkeys(("datetime", "timestamptz"), "timestamp"),
    **dict.fromkeys(("array", "jsonb", "list", "map", "object", "struct", "super"), "json"),
    "decimal": "decimal(p, s)",
    "numeric": "decimal(p, s)",
}
"""Names of types in other systems, and what each is called here."""


def parse_type(text: str) -> ColumnType:
    """The type that a table file calls `text`; it may have a `problem`. ValueError if there is no such type."""
    keyword, numbers = _taken_apart(_WRITTEN, text)
    kind = _BY_KEYWORD.get(keyword)
    if kind is None or len(numbers) != len(_parameters(kind)):
        known = ", ".join(map(_usage, COLUMN_TYPES))
        meant = "" if kind else _meant(text)
        raise ValueError(f"{text or 'nothing'} is not a column type (known: {known}){meant}")
    return kind(*numbers)


def _meant(text: str) -> str:
    """The type that a text may mean which is none: by its first word, but lists of any type are JSON."""
    word = "array" if set("[<") & set(text) else (text.lower().split("(")[0].split() or [""])[0]
    return did_you_mean(_NAMES_ELSEWHERE.get(word, word), [*_BY_KEYWORD, *_NAMES_ELSEWHERE.values()])


def type_named(keyword: str, parameters: Mapping[str, Any]) -> ColumnType:
    """The type with this keyword; it takes of the parameters what it needs. ValueError if there is no such type."""
    kind = _BY_KEYWORD.get(keyword)
    if kind is None:
        raise ValueError(f"this version has no type {keyword}")
    return kind(**{name: parameters[name] for name in _parameters(kind)})


def type_in_glue(name: str) -> ColumnType | None:
    """The type as which readers see a column that Glue says is a `name`; None if it is none of ours."""
    keyword, numbers = _taken_apart(_IN_GLUE, name)
    kind = _BY_GLUE_NAME.get(keyword)
    if kind is None or not (kind.takes_length or len(numbers) == len(_parameters(kind))):
        return None
    return kind(*numbers[: len(_parameters(kind))])


def _taken_apart(pattern: re.Pattern[str], text: str) -> tuple[str, list[int]]:
    """What stands before the brackets and the numbers inside; nothing if it is no type at all."""
    match = pattern.fullmatch(text)
    if match is None:
        return "", []
    keyword, *numbers = match.groups()
    return keyword, [int(number) for number in numbers if number is not None]


@cache
def _parameters(kind: type[ColumnType]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _usage(kind: type[ColumnType]) -> str:
    letters = ", ".join(name[0] for name in _parameters(kind))
    return f"{kind.keyword}({letters})" if letters else kind.keyword
