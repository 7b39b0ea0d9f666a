"""Nothing but `domain/columns/` tells types apart by their names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import prism_assets
from prism_assets.domain.columns import type_names, types
from prism_assets.domain.columns.types import LEAF_TYPES
from prism_assets.domain.tables import file_schema as table_file_schema

PACKAGE = Path(prism_assets.__file__).parent
KEYWORDS = frozenset(kind.keyword for kind in LEAF_TYPES)


def test_no_other_source_tells_types_apart_by_their_names() -> None:
    """The type checker refuses to compare a type with text; this test finds text in place of a type."""
    of_json_schema = table_file_schema.__file__  # the types that it names are those of JSON
    knowing = (types.__file__, type_names.__file__, of_json_schema)
    sources = [path for path in PACKAGE.rglob("*.py") if str(path) not in knowing]
    assert [f"{path.relative_to(PACKAGE)}:{line}" for path in sources for line in told_apart(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        'if column.type == "json": ...',
        'if kind in ("timestamp", other): ...',
        'match kind:\n    case "decimal": ...',
        'WIDTHS = {"smallint": 16, "integer": 32}',
        'WIDE = ("real", "double")',
        'WIDE = {"real", "double", "decimal"}',
    ],
)
def test_names_of_types_are_found(source: str) -> None:
    assert told_apart(source)


@pytest.mark.parametrize("source", ['row["date"] == day', '{"date": day, "rows": 1}', 'kinds={"s3", "json"}'])
def test_other_uses_of_the_words_are_none(source: str) -> None:
    assert not told_apart(source)


def told_apart(source: str) -> list[int]:
    """Returns the lines that compare the name of a type, or have the name in a collection with another."""
    return [number for node in ast.walk(ast.parse(source)) for number in _told_apart(node)]


def _told_apart(node: ast.AST) -> list[int]:
    match node:
        case ast.Compare(lineno=line, left=left, comparators=others):
            return [line] if any(map(_names, [left, *others])) else []
        case ast.MatchValue(lineno=line, value=value):
            return [line] if _names(value) else []
        case ast.Dict(lineno=line, keys=keys):
            return [line] if sum(_names(key) for key in keys if key) > 1 else []
        case ast.Tuple(lineno=line) | ast.List(lineno=line) | ast.Set(lineno=line):
            return [line] if _names(node) > 1 else []
        case _:
            return []


def _names(node: ast.expr) -> int:
    """How many names of types an expression consists of."""
    match node:
        case ast.Constant(value=str(text)):
            return int(text in KEYWORDS)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return sum(map(_names, parts))
        case _:
            return 0
