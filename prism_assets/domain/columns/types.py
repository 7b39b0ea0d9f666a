"""Column types, one class each, with their names in all systems.

A type never changes for a column, except by widening. Options that may change, such as the length of texts and the
notation of times, belong to the column. `kernels/type_rules.py` defines the conversion of JSON values and the Arrow
type. A new type is a class here, its name in `ColumnType`, and its rules there. CONTRIBUTING.md gives an example.
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
"""File formats: the unit of an object's stored timestamps. Values are whole milliseconds in both."""
FILE_FORMATS = {MICROSECONDS: "microseconds", MILLISECONDS: "milliseconds"}
"""Their names in table files."""


@dataclass(frozen=True)
class _Type(ABC):
    """The properties of a type. Its fields are its parameters in brackets."""

    takes_length: ClassVar[bool] = False
    """Whether a column of this type has a `length`."""
    takes_time_options: ClassVar[bool] = False
    """Whether `source_offset` and `time_unit` apply to its values."""
    may_partition: ClassVar[bool] = False
    """Whether a column of this type may decide a row's day."""

    @property
    @abstractmethod
    def keyword(self) -> str:
        """The name in table files and stored definitions, without parameters."""

    @property
    @abstractmethod
    def in_glue(self) -> str:
        """The name in Glue and Hive, without parameters."""

    @property
    @abstractmethod
    def in_iceberg(self) -> str:
        """The name in an Iceberg schema, without parameters."""

    @property
    def parameters(self) -> Mapping[str, int]:
        """The parameters by name."""
        return vars(self)

    @property
    def problem(self) -> str | None:
        """The complaint about invalid parameters, or None."""
        return None

    @property
    def name(self) -> str:
        """The full name, as in PostgreSQL's list of columns: `bigint`, `decimal(10,2)`."""
        return self._in_brackets(self.keyword)

    @property
    def iceberg_type(self) -> str:
        """The type in an Iceberg schema: `long`, `decimal(10, 2)`."""
        return self._in_brackets(self.in_iceberg, ", ")

    def glue_type(self, length: int | None) -> str:
        """Returns the type in Glue for a column with this length: `bigint`, `decimal(10,2)`, `varchar(2000)`."""
        return f"{self.in_glue}({length})" if self.takes_length else self._in_brackets(self.in_glue)

    def widens_to(self, other: _Type) -> bool:
        """Whether every value fits the other type, and only the width differs."""
        return False

    def _in_brackets(self, name: str, between: str = ",") -> str:
        values = between.join(map(str, self.parameters.values()))
        return f"{name}({values})" if values else name

    def __str__(self) -> str:
        return self.keyword


@dataclass(frozen=True)
class StringType(_Type):
    """Text. Longer values are cut to the column's length."""

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
    """The base of whole-number types."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """The bits of a number, including its sign."""

    def widens_to(self, other: _Type) -> bool:
        """Widens to more bits."""
        return isinstance(other, WholeNumberType) and self.bits < other.bits

    @property
    def lowest(self) -> int:
        """The least value."""
        return -(1 << (self.bits - 1))

    @property
    def highest(self) -> int:
        """The greatest value."""
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
        """Widens to double precision."""
        return isinstance(other, DoubleType)


@dataclass(frozen=True)
class DoubleType(_Type):
    """Numbers of double precision."""

    keyword = "double"
    in_glue = "double"
    in_iceberg = "double"


@dataclass(frozen=True)
class DecimalType(_Type):
    """Exact numbers of at most `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    keyword = "decimal"
    in_glue = "decimal"
    in_iceberg = "decimal"

    @property
    def problem(self) -> str | None:
        """More than 38 digits do not fit the 128 bits of stored decimals."""
        fits = 1 <= self.precision <= 38 and self.scale <= self.precision
        return None if fits else "decimal(p, s) needs 1 <= p <= 38 and s <= p"

    def widens_to(self, other: _Type) -> bool:
        """Widens to more digits before the point."""
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
    """Days. An instant counts as its day in the table's time zone."""

    keyword = "date"
    in_glue = "date"
    in_iceberg = "date"
    takes_time_options = True
    may_partition = True


@dataclass(frozen=True)
class JsonType(_Type):
    """Any JSON value as text. Values longer than the column's length become null."""

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
"""All types, so that the type checker finds incomplete `match` statements. Messages list them in this order."""

COLUMN_TYPES: Sequence[type[ColumnType]] = get_args(ColumnType)

_BY_KEYWORD: Mapping[str, type[ColumnType]] = {kind.keyword: kind for kind in COLUMN_TYPES}
# Of types stored alike, readers see the first.
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
"""Type names of other systems, with their name here."""


def parse_type(text: str) -> ColumnType:
    """Returns the type for a table file's notation, perhaps with a `problem`. Raises ValueError for unknown types."""
    keyword, numbers = _split_type(_WRITTEN, text)
    kind = _BY_KEYWORD.get(keyword)
    if kind is None or len(numbers) != len(_parameters(kind)):
        known = ", ".join(map(_usage, COLUMN_TYPES))
        meant = "" if kind else _suggestion(text)
        raise ValueError(f"{text or 'nothing'} is not a column type (known: {known}){meant}")
    return kind(*numbers)


def _suggestion(text: str) -> str:
    """Returns a suggestion for an unknown type by its first word. Lists of any type are JSON."""
    word = "array" if set("[<") & set(text) else (text.lower().split("(")[0].split() or [""])[0]
    return did_you_mean(_NAMES_ELSEWHERE.get(word, word), [*_BY_KEYWORD, *_NAMES_ELSEWHERE.values()])


def type_named(keyword: str, parameters: Mapping[str, Any]) -> ColumnType:
    """Returns the type with this keyword and its parameters. Raises ValueError for unknown types."""
    kind = _BY_KEYWORD.get(keyword)
    if kind is None:
        raise ValueError(f"this version has no type {keyword}")
    return kind(**{name: parameters[name] for name in _parameters(kind)})


def type_in_glue(name: str) -> ColumnType | None:
    """Returns the type readers see for a Glue type, or None if it is none of ours."""
    keyword, numbers = _split_type(_IN_GLUE, name)
    kind = _BY_GLUE_NAME.get(keyword)
    if kind is None or not (kind.takes_length or len(numbers) == len(_parameters(kind))):
        return None
    return kind(*numbers[: len(_parameters(kind))])


def _split_type(pattern: re.Pattern[str], text: str) -> tuple[str, list[int]]:
    """Splits a type into its name and its parameters. Returns "" for other text."""
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
