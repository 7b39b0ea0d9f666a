"""Column types: what they are called everywhere, what they take, and how they are found."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import prism_assets
from prism_assets.domain.columns import types
from prism_assets.domain.columns.types import (
    COLUMN_TYPES,
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    JsonType,
    RealType,
    SmallIntType,
    StringType,
    TimestampType,
    WholeNumberType,
    parse_type,
    type_in_glue,
    type_named,
)

LINES_TO_ROWS = Path(prism_assets.__file__).parent.parent / "docs/lines-to-rows.md"
NAMES: list[tuple[ColumnType, str, str, str]] = [
    (StringType(), "string", "varchar(9)", "string"),
    (BooleanType(), "boolean", "boolean", "boolean"),
    (SmallIntType(), "smallint", "smallint", "int"),
    (IntegerType(), "integer", "int", "int"),
    (BigIntType(), "bigint", "bigint", "long"),
    (RealType(), "real", "float", "float"),
    (DoubleType(), "double", "double", "double"),
    (DecimalType(10, 2), "decimal(10,2)", "decimal(10,2)", "decimal(10, 2)"),
    (TimestampType(), "timestamp", "timestamp", "timestamptz"),
    (DateType(), "date", "date", "date"),
    (JsonType(), "json", "varchar(9)", "string"),
]


@pytest.mark.parametrize(("kind", "name", "glue", "iceberg"), NAMES)
def test_a_type_has_its_name_everywhere(kind: ColumnType, name: str, glue: str, iceberg: str) -> None:
    assert (kind.name, kind.glue_type(9), kind.iceberg_type) == (name, glue, iceberg)


def test_all_types_are_tested_and_documented() -> None:
    assert [type(row[0]) for row in NAMES] == list(COLUMN_TYPES)
    named = {
        kind.partition("(")[0].strip()
        for line in LINES_TO_ROWS.read_text().splitlines()
        if line.startswith("| ")
        for kind in line.split("|")[1].split(", ")
    }
    assert named >= {kind.keyword for kind in COLUMN_TYPES}


def test_every_class_of_a_type_is_among_the_types() -> None:
    classes = [found for _, found in inspect.getmembers(types, inspect.isclass) if issubclass(found, types._Type)]
    assert {found for found in classes if not inspect.isabstract(found)} == set(COLUMN_TYPES)


@pytest.mark.parametrize("kind", [row[0] for row in NAMES], ids=str)
def test_a_type_is_found_by_its_name_and_by_its_keyword(kind: ColumnType) -> None:
    assert parse_type(kind.name) == kind
    assert type_named(kind.keyword, {"length": 9, "precision": None, "scale": None, **kind.parameters}) == kind


@pytest.mark.parametrize("kind", [row[0] for row in NAMES], ids=str)
def test_readers_see_what_is_stored_as_text_as_strings(kind: ColumnType) -> None:
    glue = kind.glue_type(9)
    assert type_in_glue(glue) == (StringType() if glue.startswith("varchar") else kind)


def test_what_types_take() -> None:
    assert [kind for kind in COLUMN_TYPES if kind.takes_length] == [StringType, JsonType]
    assert [kind for kind in COLUMN_TYPES if kind.takes_time_options] == [TimestampType, DateType]
    assert [kind for kind in COLUMN_TYPES if kind.may_partition] == [TimestampType, DateType]


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [
        (SmallIntType(), -32_768, 32_767),
        (IntegerType(), -2_147_483_648, 2_147_483_647),
        (BigIntType(), -9_223_372_036_854_775_808, 9_223_372_036_854_775_807),
    ],
    ids=str,
)
def test_whole_numbers_have_bounds(kind: WholeNumberType, lowest: int, highest: int) -> None:
    assert (kind.lowest, kind.highest) == (lowest, highest)


@pytest.mark.parametrize("text", ["", "color", "decimal", "decimal(9)", "decimal(9,2,1)", "bigint(3)", "string(9)"])
def test_anything_else_is_no_type(text: str) -> None:
    told = r"is not a column type \(known: string, .*, decimal\(p, s\), .*\)(; did you mean decimal\(p, s\)\?)?$"
    with pytest.raises(ValueError, match=told):
        parse_type(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("strng", "string"),
        ("bigitn", "bigint"),
        ("int", "integer"),
        ("VARCHAR(20)", "string"),
        ("long", "bigint"),
        ("BIGINT", "bigint"),
        ("int4", "integer"),
        ("double precision", "double"),
        ("timestamp with time zone", "timestamp"),
        ("int[]", "json"),
        ("array<string>", "json"),
    ],
)
def test_a_type_that_is_misspelt_or_called_as_elsewhere_gets_a_suggestion(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"did you mean {meant}\?$"):
        parse_type(text)


def test_a_decimal_may_have_too_many_digits() -> None:
    assert parse_type("decimal( 38 , 38 )") == DecimalType(38, 38)
    assert parse_type("decimal(38,38)").problem is None
    for text in ("decimal(39,2)", "decimal(0,0)", "decimal(3,4)"):
        assert parse_type(text).problem == "decimal(p, s) needs 1 <= p <= 38 and s <= p"


@pytest.mark.parametrize("glue", ["", "string", "integer", "array<string>", "decimal", "decimal(3, 1)", "int(3)"])
def test_readers_know_no_other_types(glue: str) -> None:
    assert type_in_glue(glue) is None


@pytest.mark.parametrize(
    ("one", "other", "widens"),
    [
        (SmallIntType(), IntegerType(), True),
        (SmallIntType(), BigIntType(), True),
        (IntegerType(), SmallIntType(), False),
        (BigIntType(), BigIntType(), False),
        (BigIntType(), DoubleType(), False),
        (RealType(), DoubleType(), True),
        (DoubleType(), RealType(), False),
        (DecimalType(10, 2), DecimalType(12, 2), True),
        (DecimalType(10, 2), DecimalType(12, 3), False),
        (DecimalType(10, 2), DecimalType(9, 2), False),
        (StringType(), JsonType(), False),
    ],
)
def test_a_type_widens_where_nothing_but_the_width_differs(one: ColumnType, other: ColumnType, widens: bool) -> None:
    assert one.widens_to(other) is widens
