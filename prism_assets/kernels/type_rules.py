"""The rules of each column type: its storage, and its values.

No other module goes through all types. The type checker finds a missing one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    BigIntType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    IntegerType,
    JsonType,
    ListType,
    MapType,
    NestedType,
    RealType,
    SmallIntType,
    StringType,
    StructType,
    TimestampType,
    WholeNumberType,
)
from prism_assets.kernels import columns, values
from prism_assets.kernels.columns import ColumnBuilder, ColumnRule
from prism_assets.kernels.nested import NestedBuilder, NestedRule, arrow_type
from prism_assets.kernels.times import TimeOptions
from prism_assets.kernels.values import Rule

CompiledType = tuple[Any, ...]

_UTC = ZoneInfo("UTC")
# From here on doubles become infinite when stored as single or double.
_SINGLE_OVERFLOW = 3.4028235677973366e38
_DOUBLE_OVERFLOW = float("inf")


@dataclass(frozen=True)
class TypeRules:
    """The rules of one column."""

    arrow: pa.DataType
    """The stored type. Its physical Parquet type never changes. Timestamps are milliseconds in kernels, and have the
    unit of the file format in objects.
    """
    exact: Rule
    """The rule of one value."""
    by_column: ColumnRule
    """The same rule for many values."""
    whole: pa.DataType | None = None
    """The type of whole numbers for `by_column`. None if the rule needs their text."""
    compiled: CompiledType | None = None
    """The name of the type in the compiled kernel, with its parameters or parts. If a type of a table has none, Python
    reads the table.
    """
    nested: NestedRule | None = None
    """The rule of a nested type, which reports misfits by path."""

    def builder(self) -> ColumnBuilder | NestedBuilder:
        """Returns an empty builder of a column."""
        return ColumnBuilder(self.exact, self.arrow) if self.nested is None else NestedBuilder(self.nested)


@lru_cache(maxsize=4096)
def rules_of(column: Column | Field, zone: ZoneInfo) -> TypeRules:
    """Returns the rules of a column, or of a part of one, in a table whose days begin at midnight in `zone`.

    Each worker makes them once.
    """
    length = DEFAULT_LENGTH if column.length is None else column.length
    times = TimeOptions.of(column, zone)
    match column.type:
        case StringType():
            rule = columns.string_rule(length)
            return TypeRules(pa.string(), values.string_rule(length), rule, compiled=("text", length))
        case JsonType():
            return TypeRules(pa.string(), values.json_rule(length), columns.one_by_one, compiled=("json", length))
        case BooleanType():
            return TypeRules(pa.bool_(), values.boolean_rule, columns.boolean_rule, compiled=("boolean",))
        case SmallIntType() as kind:
            return _whole_numbers(kind, pa.int16())
        case IntegerType() as kind:
            return _whole_numbers(kind, pa.int32())
        case BigIntType() as kind:
            return _whole_numbers(kind, pa.int64())
        case RealType():
            return _floats(pa.float32(), _SINGLE_OVERFLOW)
        case DoubleType():
            return _floats(pa.float64(), _DOUBLE_OVERFLOW)
        case DecimalType(precision, scale):
            arrow, exact = pa.decimal128(precision, scale), values.decimal_rule(precision, scale)
            return TypeRules(arrow, exact, columns.one_by_one, compiled=("decimal", precision, scale))
        case TimestampType():
            arrow = pa.timestamp("ms", "UTC")
            rules = values.timestamp_rule(times), columns.timestamp_rule(times)
            return TypeRules(arrow, *rules, pa.int64(), ("timestamp", times.source_offset, times.unit))
        case DateType():
            compiled = ("date", times.source_offset, times.unit)
            return TypeRules(pa.date32(), values.date_rule(times), columns.date_rule(times), pa.int64(), compiled)
        case StructType() | ListType() | MapType() as kind:
            nested = NestedRule.of(column.name, kind, lambda part: _leaf_rules(part, zone))
            compiled_kind = _compiled_parts(kind, zone)
            return TypeRules(nested.arrow, nested.exact, columns.one_by_one, compiled=compiled_kind, nested=nested)


def _leaf_rules(part: Field, zone: ZoneInfo) -> tuple[pa.DataType, Rule]:
    rules = rules_of(part, zone)
    return rules.arrow, rules.exact


def _compiled_parts(kind: NestedType, zone: ZoneInfo) -> CompiledType | None:
    """Describes a nested type to the compiled kernel, the fields of structs in the order of their ids.

    Each part is its key, name, name in objects, id, place in the table file, and type.
    """
    parts = []
    for part in kind.by_id if isinstance(kind, StructType) else kind.parts:
        compiled = rules_of(part, zone).compiled
        if compiled is None:
            return None
        place = kind.parts.index(part)
        parts.append((part.source or part.name, part.name, part.stored_name, part.field_id, place, compiled))
    return kind.keyword, parts


def _whole_numbers(kind: WholeNumberType, arrow: pa.DataType) -> TypeRules:
    bounds = kind.lowest, kind.highest
    by_column = columns.whole_number_rule(*bounds, arrow)
    return TypeRules(arrow, values.whole_number_rule(*bounds), by_column, pa.int64(), (f"int{kind.bits}",))


def _floats(arrow: pa.DataType, overflow: float) -> TypeRules:
    compiled = (f"float{arrow.bit_width}",)
    return TypeRules(arrow, values.float_rule(overflow), columns.float_rule(overflow, arrow), pa.float64(), compiled)


def named_type(column: Column) -> pa.DataType:
    """Returns the Arrow type of a column's values with the current names of fields, for expressions."""
    if not isinstance(column.type, NestedType):
        return stored_type(column)
    return arrow_type(column.type, lambda part: _leaf_rules(part, _UTC), current_names=True)


def stored_type(column: Column) -> pa.DataType:
    """Returns the Arrow type of a column's stored values, for any zone. Timestamps are milliseconds in kernels."""
    return rules_of(column, _UTC).arrow
