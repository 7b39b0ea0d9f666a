"""Column types: what they are called everywhere, what they take, and how they are found."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

import prism_assets
from prism_assets.domain.columns import types
from prism_assets.domain.columns.parts import from_documents, paths_of, to_documents, with_ids
from prism_assets.domain.columns.type_names import parse_type, type_in_glue, type_named
from prism_assets.domain.columns.types import (
    LEAF_TYPES,
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    JsonType,
    LeafType,
    ListType,
    MapType,
    RealType,
    SmallIntType,
    StringType,
    StructType,
    TimestampType,
    WholeNumberType,
)

LINES_TO_ROWS = Path(prism_assets.__file__).parent.parent / "docs/lines-to-rows.md"
NAMES: list[tuple[LeafType, str, str, str]] = [
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
def test_a_type_has_its_name_everywhere(kind: LeafType, name: str, glue: str, iceberg: str) -> None:
    assert (kind.name, kind.glue_type(9), kind.iceberg_type) == (name, glue, iceberg)


def test_all_types_are_tested_and_documented() -> None:
    assert [type(row[0]) for row in NAMES] == list(LEAF_TYPES)
    named = {
        kind.partition("(")[0].strip()
        for line in LINES_TO_ROWS.read_text().splitlines()
        if line.startswith("| ")
        for kind in line.split("|")[1].split(", ")
    }
    assert named >= {kind.keyword for kind in LEAF_TYPES}


def test_every_class_of_a_type_is_among_the_types() -> None:
    classes = [found for _, found in inspect.getmembers(types, inspect.isclass) if issubclass(found, types._Type)]
    concrete = {found for found in classes if not inspect.isabstract(found)}
    assert concrete == {*LEAF_TYPES, StructType, ListType, MapType}


@pytest.mark.parametrize("kind", [row[0] for row in NAMES], ids=str)
def test_a_type_is_found_by_its_name_and_by_its_keyword(kind: ColumnType) -> None:
    assert parse_type(kind.name) == kind
    assert type_named(kind.keyword, {"length": 9, "precision": None, "scale": None, **kind.parameters}) == kind


@pytest.mark.parametrize("kind", [row[0] for row in NAMES], ids=str)
def test_readers_see_what_is_stored_as_text_as_strings(kind: LeafType) -> None:
    glue = kind.glue_type(9)
    assert type_in_glue(glue) == (StringType() if glue.startswith("varchar") else kind)


def test_what_types_take() -> None:
    assert [kind for kind in LEAF_TYPES if kind.takes_length] == [StringType, JsonType]
    assert [kind for kind in LEAF_TYPES if kind.takes_time_options] == [TimestampType, DateType]
    assert [kind for kind in LEAF_TYPES if kind.may_partition] == [TimestampType, DateType]


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
        ("int[]", "list<type>"),
        ("object", "struct<name: type>"),
        ("super", "json"),
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


NESTED = [
    (
        "struct<id: bigint, name: string(200), plan: struct<code: string(8)>>",
        "struct<id:bigint,name:varchar(200),plan:struct<code:varchar(8)>>",
    ),
    ("map<string(64), list<string(256)>>", "map<varchar(64),array<varchar(256)>>"),
    ("list<list<decimal(10,2)>>", "array<array<decimal(10,2)>>"),
    ("struct<at: timestamp, any: json, text: string>", "struct<at:timestamp,any:varchar(65535),text:varchar(65535)>"),
]


@pytest.mark.parametrize(("text", "glue"), NESTED)
def test_a_nested_type_is_read_back_from_its_name_and_from_its_document(text: str, glue: str) -> None:
    kind = with_ids(parse_type(text), iter(range(2, 99)).__next__)
    assert (kind.name, kind.glue_type(None)) == (text, glue)
    documents = list(to_documents(kind, 1))
    assert [document["id"] for document in documents] == list(range(2, len(documents) + 2))
    assert from_documents(kind.keyword, 1, documents, "v") == kind


def test_a_nested_type_has_a_flat_document() -> None:
    kind = with_ids(parse_type("struct<a: list<decimal(9,2)>, b: string(8)>"), iter(range(2, 9)).__next__)
    assert list(to_documents(kind, 1)) == [
        {"id": 2, "parent": 1, "name": "a", "type": "list", "source": "a"},
        {"id": 3, "parent": 2, "name": "element", "type": "decimal", "precision": 9, "scale": 2},
        {"id": 4, "parent": 1, "name": "b", "type": "string", "source": "b", "length": 8},
    ]
    assert [path for path, _ in paths_of("v", kind)] == ["v.a", "v.a[]", "v.b"]


def test_an_array_is_a_list_and_spaces_do_not_count() -> None:
    assert parse_type(" array < struct<a:bigint,b : string ( 9 )> > ".strip()) == parse_type(
        "list<struct<a: bigint, b: string(9)>>"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("struct<userName: string>", "the field userName must begin with a-z .*source: userName"),
        ("struct<a: bigint, a: double>", "a is given twice"),
        ("struct<>", "a struct needs a field: Parquet stores none without"),
        ("struct", r"a struct needs its parts: write struct<name: type, …>, or say fields"),
        ("list", "a list needs its parts: write list<type>, or say element"),
        ("map", "a map needs its parts: write map<string, type>, or say key and value"),
        ("map<bigint, string>", "keys of a map are texts: write map<string, …>, not map<bigint, …>"),
        ("list<color>", "color is not a column type"),
        ("list<string(0)>", "a length must lie between 1 and 65535"),
        ("list<decimal(39,2)>", "needs 1 <= p <= 38"),
        ("list<bigint", "> is expected at character 12 of the type, and there is the end"),
        ("list<bigint>>", "the end is expected at character 13 of the type, and there is >"),
        ("map<string>", ", is expected at character 11"),
        ("struct<a bigint>", "is expected at character 10 of the type, and there is bigint"),
        ("list<" * 16 + "bigint" + ">" * 16, "a type has at most 16 levels: make the inner ones json"),
    ],
)
def test_a_wrong_nested_type_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_type(text)


def test_fields_in_glue_stand_in_the_order_of_their_ids_under_their_first_names() -> None:
    kind = parse_type("struct<a: bigint, b: double>")
    first, second = kind.parts
    moved = StructType((replace(second, field_id=9), replace(first, field_id=4, stored_as="old")))
    assert moved.glue_type(None) == "struct<old:bigint,b:double>"


@pytest.mark.parametrize(
    "glue", ["", "string", "integer", "array<string>", "struct<a:int", "decimal", "decimal(3, 1)", "int(3)"]
)
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
