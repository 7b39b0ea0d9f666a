"""Column types, one class each, with their names in all systems.

A type never changes for a column, except by widening. Options that may change, such as the length of texts and the
notation of times, belong to the column, or to the part of a nested column. `kernels/type_rules.py` defines the
conversion of JSON values and the Arrow type. A new type is a class here, its name in `LeafType`, and its rules there.
CONTRIBUTING.md gives an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, get_args

DEFAULT_LENGTH = 65_535
"""Bytes of a text without a length. Also the greatest length."""
MILLISECONDS, MICROSECONDS = 1, 2
"""File formats: the unit of an object's stored timestamps. Values are whole milliseconds in both."""
FILE_FORMATS = {MICROSECONDS: "microseconds", MILLISECONDS: "milliseconds"}
"""Their names in table files."""
MOST_SLOTS = 8 << 20
"""The most slots that the elements and entries in the nested columns of one row take. A value beyond them is null.

In a list of structs of 100 fields, `{},` takes three bytes of a line and 101 slots of Arrow, mostly of 8 bytes. A line
of 16 MiB would fill 4 GiB. JSON that writes all its values takes one slot for two bytes at most, so it has never more
slots than this in the longest line. While the kernel reads such a row, its arrays and their places take 160 MiB.
"""


class _Type(ABC):
    """The properties of a type."""

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
    def parameters(self) -> Mapping[str, int]:
        """The parameters by name."""
        return {}

    @property
    def parts(self) -> tuple[Field, ...]:
        """The fields of a struct, the element of a list, the key and the value of a map."""
        return ()

    @property
    def problem(self) -> str | None:
        """The complaint about invalid parameters, or None."""
        return None

    @property
    @abstractmethod
    def name(self) -> str:
        """The full name, as in PostgreSQL's list of columns: `bigint`, `decimal(10,2)`, `list<string(64)>`."""

    @abstractmethod
    def glue_type(self, length: int | None, *, whole: bool = False) -> str:
        """Returns the type in Glue for a column with this length: `bigint`, `decimal(10,2)`, `varchar(2000)`.

        `whole` structs end with their dropped fields, which Glue shows no longer.
        """

    def widens_to(self, other: _Type) -> bool:
        """Whether every value fits the other type, and only the width differs."""
        return False

    def __str__(self) -> str:
        return self.keyword


@dataclass(frozen=True)
class _LeafType(_Type):
    """A type of values without parts. Its fields are its parameters in brackets."""

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
    def name(self) -> str:
        """The name with its parameters."""
        return self._in_brackets(self.keyword)

    @property
    def iceberg_type(self) -> str:
        """The type in an Iceberg schema: `long`, `decimal(10, 2)`."""
        return self._in_brackets(self.in_iceberg, ", ")

    def glue_type(self, length: int | None, *, whole: bool = False) -> str:
        """Returns the type in Glue, with the length in brackets for texts."""
        return f"{self.in_glue}({length})" if self.takes_length else self._in_brackets(self.in_glue)

    def _in_brackets(self, name: str, between: str = ",") -> str:
        values = between.join(map(str, self.parameters.values()))
        return f"{name}({values})" if values else name


@dataclass(frozen=True)
class StringType(_LeafType):
    """Text. Longer values are cut to the column's length."""

    keyword = "string"
    in_glue = "varchar"
    in_iceberg = "string"
    takes_length = True


@dataclass(frozen=True)
class BooleanType(_LeafType):
    """True or false."""

    keyword = "boolean"
    in_glue = "boolean"
    in_iceberg = "boolean"


@dataclass(frozen=True)
class WholeNumberType(_LeafType):
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
class RealType(_LeafType):
    """Numbers of single precision."""

    keyword = "real"
    in_glue = "float"
    in_iceberg = "float"

    def widens_to(self, other: _Type) -> bool:
        """Widens to double precision."""
        return isinstance(other, DoubleType)


@dataclass(frozen=True)
class DoubleType(_LeafType):
    """Numbers of double precision."""

    keyword = "double"
    in_glue = "double"
    in_iceberg = "double"


@dataclass(frozen=True)
class DecimalType(_LeafType):
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
class TimestampType(_LeafType):
    """Instants, to the millisecond."""

    keyword = "timestamp"
    in_glue = "timestamp"
    in_iceberg = "timestamptz"
    takes_time_options = True
    may_partition = True


@dataclass(frozen=True)
class DateType(_LeafType):
    """Days. An instant counts as its day in the table's time zone."""

    keyword = "date"
    in_glue = "date"
    in_iceberg = "date"
    takes_time_options = True
    may_partition = True


@dataclass(frozen=True)
class JsonType(_LeafType):
    """Any JSON value as text. Values longer than the column's length become null."""

    keyword = "json"
    in_glue = "varchar"
    in_iceberg = "string"
    takes_length = True


LeafType = (
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
"""All types without parts, so that the type checker finds incomplete `match` statements. Messages list them in this
order."""

LEAF_TYPES: Sequence[type[LeafType]] = get_args(LeafType)


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a struct, the element of a list, or the key or the value of a map. All but keys may be null."""

    name: str
    """The name in files of tables and for readers by id: `element`, `key` or `value` outside of structs."""
    type: ColumnType
    source: str | None = None
    """The JSON key, for fields of a struct."""
    length: int | None = None
    source_offset: str | None = None
    time_unit: str | None = None
    sensitive: bool = False
    field_id: int = 0
    """The id in Parquet and Iceberg, from the counter of the table's columns. 0 until PostgreSQL assigns one."""
    stored_as: str | None = None
    """The first name, if it was another. Objects and Glue have it for ever."""
    in_place_of: int = 0
    """The id of the dropped field of the same name. This field has its place in Glue. 0 for none."""
    evolved: bool = False
    """Added by the table's contract, and not yet in the file."""
    was: str | None = field(default=None, compare=False)
    """The former name according to the file. Neither compared nor stored."""

    @property
    def stored_name(self) -> str:
        """The name in objects and in Glue."""
        return self.stored_as or self.name

    @property
    def type_name(self) -> str:
        """The type as in a table file, with a length other than the default in brackets: `string(200)`."""
        has_length = self.type.takes_length and self.length not in (None, DEFAULT_LENGTH)
        return f"{self.type.name}({self.length})" if has_length else self.type.name

    @property
    def place(self) -> int:
        """The order of the fields of a struct in Glue: of their ids."""
        return self.in_place_of or self.field_id

    def glue_type(self, *, whole: bool = False) -> str:
        """Returns the type in Glue."""
        return self.type.glue_type(self.length, whole=whole)


@dataclass(frozen=True)
class DroppedField:
    """A field that left a struct. It keeps its place in Glue, because readers of Glue may match fields by place."""

    place: int
    name: str
    """The name in objects and in Glue."""
    in_glue: str
    """The type in Glue."""

    @property
    def stored_name(self) -> str:
        """The name in objects and in Glue."""
        return self.name

    def glue_type(self, *, whole: bool = False) -> str:
        """Returns the type in Glue."""
        return self.in_glue


@dataclass(frozen=True)
class StructType(_Type):
    """Objects with known keys."""

    fields: tuple[Field, ...]
    """In the order of the table file."""
    dropped: tuple[DroppedField, ...] = ()

    keyword = "struct"

    @property
    def parts(self) -> tuple[Field, ...]:
        """The fields."""
        return self.fields

    @property
    def taken_names(self) -> frozenset[str]:
        """Names that no new field may have: those in force, those in objects, and those of dropped fields."""
        names = [name for part in self.fields for name in (part.name, part.stored_name)]
        return frozenset([*names, *(gone.name for gone in self.dropped)])

    @property
    def by_id(self) -> tuple[Field, ...]:
        """The fields in the order of their ids, as in objects and in Glue."""
        return tuple(sorted(self.fields, key=lambda part: part.field_id))

    @property
    def name(self) -> str:
        """The type as in a table file."""
        return f"struct<{', '.join(f'{part.name}: {part.type_name}' for part in self.fields)}>"

    def glue_type(self, length: int | None, *, whole: bool = False) -> str:
        """Returns the type in Glue: fields by place and under their names in objects.

        Dropped fields are shown before others, and after the last field only in `whole` structs.
        """
        last = max(part.place for part in self.fields)
        dropped = [part for part in self.dropped if whole or part.place < last]
        shown: list[Field | DroppedField] = sorted([*self.fields, *dropped], key=lambda part: part.place)
        return f"struct<{','.join(f'{part.stored_name}:{part.glue_type(whole=whole)}' for part in shown)}>"


@dataclass(frozen=True)
class ListType(_Type):
    """Arrays of values of one type."""

    element: Field

    keyword = "list"

    @property
    def parts(self) -> tuple[Field, ...]:
        """The element."""
        return (self.element,)

    @property
    def name(self) -> str:
        """The type as in a table file."""
        return f"list<{self.element.type_name}>"

    def glue_type(self, length: int | None, *, whole: bool = False) -> str:
        """Returns the type in Glue."""
        return f"array<{self.element.glue_type(whole=whole)}>"


@dataclass(frozen=True)
class MapType(_Type):
    """Objects with any keys, and values of one type."""

    key: Field
    value: Field

    keyword = "map"

    @property
    def parts(self) -> tuple[Field, ...]:
        """The key and the value."""
        return (self.key, self.value)

    @property
    def name(self) -> str:
        """The type as in a table file."""
        return f"map<{self.key.type_name}, {self.value.type_name}>"

    def glue_type(self, length: int | None, *, whole: bool = False) -> str:
        """Returns the type in Glue."""
        return f"map<{self.key.glue_type(whole=whole)},{self.value.glue_type(whole=whole)}>"


NestedType = StructType | ListType | MapType
ColumnType = LeafType | NestedType
"""All types of columns and their parts."""


def all_parts(kind: ColumnType) -> Iterator[Field]:
    """Yields the parts of a type at every level, each before its own parts."""
    for part in kind.parts:
        yield part
        yield from all_parts(part.type)


def part_count(kind: ColumnType) -> int:
    """Returns the number of parts at all levels."""
    return sum(1 for _ in all_parts(kind))


def slots_of(kind: ColumnType) -> int:
    """Returns the slots of one value in Arrow's arrays, without those of its elements and entries.

    Each part has a slot, also in a null struct.
    """
    return 1 + (slots_below(kind) if isinstance(kind, StructType) else 0)


def slots_below(kind: ColumnType) -> int:
    """Returns the slots of one element of a list, of one entry of a map, or of the fields of a struct."""
    return sum(slots_of(part.type) for part in kind.parts)


def levels_of(kind: ColumnType) -> int:
    """Returns the levels of a type: 1 for a leaf."""
    return 1 + max((levels_of(part.type) for part in kind.parts), default=0)
