"""The kernels' rules for a type agree with the type's own, and cover all types."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.type_names import type_named
from prism_assets.domain.columns.types import LEAF_TYPES, MICROSECONDS, LeafType, WholeNumberType
from prism_assets.kernels.columns import to_array
from prism_assets.kernels.parquet.format import in_format
from prism_assets.kernels.type_rules import rules_of, stored_type
from prism_assets.kernels.values import Number, Result
from prism_assets.reading.query import arrow_type
from prism_assets_tests.kernels.test_both_ways import TABLE
from prism_assets_tests.kernels.test_values import CASES

TOKYO = ZoneInfo("Asia/Tokyo")
EVERY_TYPE = [type_named(kind.keyword, {"precision": 12, "scale": 3}) for kind in LEAF_TYPES]
IN_DUCKDB = {
    "string": "VARCHAR", "boolean": "BOOLEAN", "smallint": "SMALLINT", "integer": "INTEGER", "bigint": "BIGINT",
    "real": "FLOAT", "double": "DOUBLE", "decimal": "DECIMAL(12,3)", "timestamp": "TIMESTAMP WITH TIME ZONE",
    "date": "DATE", "json": "VARCHAR",
}  # fmt: skip


def a_column(kind: LeafType, **more: Any) -> Column:
    return Column(name="v", source="v", type=kind, **more)


def test_every_type_is_read_both_ways_and_value_by_value() -> None:
    assert {type(column.type) for column in TABLE.columns} == set(LEAF_TYPES)
    assert CASES.keys() == {kind.keyword for kind in LEAF_TYPES}


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=str)
def test_a_type_is_read_back_as_it_is_stored(kind: LeafType) -> None:
    column = a_column(kind, length=9)
    stored = in_format(pa.schema([("v", stored_type(column))]), MICROSECONDS)
    assert arrow_type(column.glue_type) == stored.field("v").type


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=str)
def test_duckdb_reads_what_is_stored_as_its_type_of_that_kind(kind: LeafType) -> None:
    nothing = pa.table({"v": pa.nulls(0, stored_type(a_column(kind)))})
    assert [str(found) for found in duckdb.from_arrow(nothing).types] == [IN_DUCKDB[kind.keyword]]


def test_whole_numbers_are_stored_in_their_bits() -> None:
    whole = [kind for kind in EVERY_TYPE if isinstance(kind, WholeNumberType)]
    assert [stored_type(a_column(kind)).bit_width for kind in whole] == [kind.bits for kind in whole]


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=str)
def test_time_options_count_where_a_type_takes_them(kind: LeafType) -> None:
    def results(column: Column) -> list[Result]:
        rule = rules_of(column, TOKYO).exact
        return [rule(Number("1540339223000"), "1540339223000"), rule("2018-10-24 20:00:00", '"2018-10-24 20:00:00"')]

    plain = results(a_column(kind))
    assert (results(a_column(kind, source_offset="+09:00")) != plain) == kind.takes_time_options
    assert (results(a_column(kind, time_unit="microseconds")) != plain) == kind.takes_time_options


_DAYS = ("2026-03-01", "2024-02-29", "2026-02-29", "2026-02-30", "2026-04-31", "2026-12-31", "0000-01-01", "9999-12-31")
_TIMES = (
    "T12:00:00",
    " 23:59:59",
    "T24:00:00",
    "T23:59:60",
    "T12:00:60",
    "T12:60:00",
    "T12",
    "T12:30",
    "t12:00:00",
    "",
)
_FRACTIONS = ("", ".5", ".123", ",123", ".123456", ".123456789", ".1234567890", ".")
_OFFSETS = (
    "", "Z", "z", " UTC", "+09:00", "-0930", "+09", "+24:00", "+09:60", " +09:00", "+9", "Z[UTC]",
    "+09:00[Asia/Tokyo]", "[Asia/Tokyo]", "+01:00[Nowhere/At_All]",
)  # fmt: skip
_NO_TIMES = (
    "",
    "soon",
    "1772395200",
    "1772395200.5",
    "20260301T120000Z",
    "2026-13-01T00:00:00Z",
    "2026-03-01T12:00:00Z\n",
)
_WRITTEN = st.one_of(
    st.builds(lambda *parts: "".join(parts), *map(st.sampled_from, (_DAYS, _TIMES, _FRACTIONS, _OFFSETS))),
    st.sampled_from(("2026-03-01T12:00:00Z", "2026-03-01 12:00:00", *_NO_TIMES)),
    st.none(),
)


_NUMBERS = st.one_of(
    st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        ("", "-", "200", "0.005", "007", "-0", "1e400", "NaN", "Infinity", " 1", "1 ", "+1", "½", "٣", "1\n")
    ),
    st.none(),
)


def assert_same_as_alone(column: Column, written: list[str | None]) -> None:
    rules = rules_of(column, TOKYO)
    typed = rules.by_column(pa.array(written, pa.string()))
    assert typed is not None
    alone = [(None, None) if text is None else rules.exact(text, "") for text in written]
    assert typed.array.equals(to_array([stored for stored, _ in alone], rules.arrow))
    assert {(row, reason) for reason, rows in typed.misfits.items() for row in rows.tolist()} == {
        (row, reason) for row, (_, reason) in enumerate(alone) if reason is not None
    }


@pytest.mark.parametrize("offset", [None, "+09:00"])
@given(written=st.lists(_WRITTEN, min_size=1, max_size=8).filter(any))
def test_times_of_many_forms_are_the_same_all_at_once_as_each_alone(
    offset: str | None, written: list[str | None]
) -> None:
    assert_same_as_alone(a_column(type_named("timestamp", {}), source_offset=offset), written)


@pytest.mark.parametrize("kind", ["smallint", "bigint", "real", "double"])
@given(written=st.lists(_NUMBERS, min_size=1, max_size=8).filter(any))
def test_numbers_in_quotes_are_the_same_all_at_once_as_each_alone(kind: str, written: list[str | None]) -> None:
    assert_same_as_alone(a_column(type_named(kind, {})), written)
