"""Types by their names: the notation of table files, stored definitions, and Glue."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    LEAF_TYPES,
    ColumnType,
    Field,
    LeafType,
    ListType,
    MapType,
    NestedType,
    StringType,
    StructType,
)
from prism_assets.domain.names import NAME_RULE, did_you_mean, is_name

MOST_LEVELS = 16
"""Levels of nested types, with the leaf."""
ELEMENT, KEY, VALUE = "element", "key", "value"
"""Names of parts outside of structs, as in Parquet."""
_WRITTEN = re.compile(r"(\w+)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_IN_GLUE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s<>(),:]*")

_BY_KEYWORD: Mapping[str, type[LeafType]] = {kind.keyword: kind for kind in LEAF_TYPES}
# Of types stored alike, readers see the first.
_BY_GLUE_NAME: Mapping[str, type[LeafType]] = {kind.in_glue: kind for kind in reversed(LEAF_TYPES)}
_NESTED: Mapping[str, type[NestedType]] = {
    "struct": StructType,
    "list": ListType,
    "array": ListType,
    "map": MapType,
}
"""Names of nested types. Spark and Glue call a list an array."""

_NAMES_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("char", "character", "str", "text", "uuid", "varchar"), "string"),
    "bool": "boolean",
    **dict.fromkeys(("int16", "int2", "short", "tinyint"), "smallint"),
    **dict.fromkeys(("int", "int32", "int4"), "integer"),
    **dict.fromkeys(("int64", "int8", "long"), "bigint"),
    **dict.fromkeys(("float", "float4", "float32"), "real"),
    **dict.fromkeys(("float8", "float64", "number"), "double"),
    **dict.fromkeys(("datetime", "timestamptz"), "timestamp"),
    **dict.fromkeys(("jsonb", "super", "variant"), "json"),
    **dict.fromkeys(("object", "record", "row"), "struct<name: type>"),
    "decimal": "decimal(p, s)",
    "numeric": "decimal(p, s)",
}
"""Type names of other systems, with their name here."""

_Part = tuple[ColumnType, int | None]
"""The type of a part, and its length."""


def parse_type(text: str) -> ColumnType:
    """Returns the type for a table file's notation, perhaps with a `problem`. Raises ValueError for unknown types."""
    if "<" in text:
        return _Notation(text, _written_part).whole()
    if text in _NESTED:
        raise ValueError(_without_parts(_NESTED[text]))
    return _leaf(text)


def nested_keyword(text: str) -> type[NestedType] | None:
    """Returns the class of a nested type for its bare name, or None."""
    return _NESTED.get(text)


def _without_parts(kind: type[NestedType]) -> str:
    long_form = {StructType: "fields", ListType: ELEMENT, MapType: f"{KEY} and {VALUE}"}[kind]
    short_form = {StructType: "struct<name: type, …>", ListType: "list<type>", MapType: "map<string, type>"}[kind]
    return f"a {kind.keyword} needs its parts: write {short_form}, or say {long_form}"


def _leaf(text: str) -> LeafType:
    keyword, numbers = _split_type(_WRITTEN, text)
    kind = _BY_KEYWORD.get(keyword)
    if kind is None or len(numbers) != len(_parameters(kind)):
        known = ", ".join([*map(_usage, LEAF_TYPES), "struct<…>", "list<…>", "map<string, …>"])
        meant = "" if kind else _suggestion(text)
        raise ValueError(f"{text or 'nothing'} is not a column type (known: {known}){meant}")
    return kind(*numbers)


def _suggestion(text: str) -> str:
    """Returns a suggestion for an unknown type by its first word."""
    word = "list<type>" if "[" in text else (text.lower().split("(")[0].split() or [""])[0]
    names = [*_BY_KEYWORD, *_NAMES_ELSEWHERE.values(), "list<type>"]
    return did_you_mean(_NAMES_ELSEWHERE.get(word, word), names)


def type_named(keyword: str, parameters: Mapping[str, Any]) -> LeafType:
    """Returns the type with this keyword and its parameters. Raises ValueError for unknown types."""
    kind = _BY_KEYWORD.get(keyword)
    if kind is None:
        raise ValueError(f"this version has no type {keyword}")
    return kind(**{name: parameters[name] for name in _parameters(kind)})


def type_in_glue(name: str) -> ColumnType | None:
    """Returns the type readers see for a Glue type, or None if it is none of ours."""
    if "<" not in name:
        return _leaf_in_glue(name)
    try:
        return _Notation(name, _glue_part).whole()
    except ValueError:
        return None


def _leaf_in_glue(name: str) -> LeafType | None:
    keyword, numbers = _split_type(_IN_GLUE, name)
    kind = _BY_GLUE_NAME.get(keyword)
    if kind is None or not (kind.takes_length or len(numbers) == len(_parameters(kind))):
        return None
    return kind(*numbers[: len(_parameters(kind))])


def _glue_part(text: str) -> _Part:
    kind = _leaf_in_glue(text)
    if kind is None:
        raise ValueError(f"{text} is no type of Glue")
    return kind, next(iter(_split_type(_IN_GLUE, text)[1]), None) if kind.takes_length else None


def _written_part(text: str) -> _Part:
    """Returns the type of a part and its length: `string(200)`. Only parts have their length in brackets."""
    keyword, numbers = _split_type(_WRITTEN, text)
    kind = _BY_KEYWORD.get(keyword)
    if kind is None or not kind.takes_length or len(numbers) != 1:
        leaf = _leaf(text)
        if leaf.problem:
            raise ValueError(leaf.problem)
        return leaf, DEFAULT_LENGTH if leaf.takes_length else None
    if not 1 <= numbers[0] <= DEFAULT_LENGTH:
        raise ValueError(f"{text}: a length must lie between 1 and {DEFAULT_LENGTH}")
    return _leaf(keyword), numbers[0]


def nested_problem(kind: ColumnType) -> str | None:
    """Returns why a nested type cannot be stored, or None."""
    match kind:
        case StructType(()):
            return "a struct needs a field: Parquet stores none without"
        case StructType(fields):
            names = [part.name for part in fields]
            twice = sorted({name for name in names if names.count(name) > 1})
            return f"{twice[0]} is given twice" if twice else None
        case MapType(key) if not isinstance(key.type, StringType):
            return f"keys of a map are texts: write map<string, …>, not map<{key.type_name}, …>"
    return None


class _Notation:
    """Reads `struct<a: int, b: list<map<string, double>>>`, with leaves in the words of one system."""

    def __init__(self, text: str, leaf: Callable[[str], _Part]) -> None:
        self._text = text
        self._leaf = leaf
        self._place = 0

    def whole(self) -> ColumnType:
        """Reads the whole text. Raises ValueError with the problem."""
        kind, _ = self._type(1)
        if self._place < len(self._text):
            self._expected("the end")
        return kind

    def _type(self, level: int) -> _Part:
        if level > MOST_LEVELS:
            raise ValueError(f"a type has at most {MOST_LEVELS} levels: make the inner ones json")
        self._skip()
        word = self._word()
        nested = _NESTED.get(word)
        if nested is None:
            return self._leaf(word + self._brackets())
        if not self._comes("<"):
            raise ValueError(_without_parts(nested))
        kind = self._parts(nested, level)
        if problem := nested_problem(kind):
            raise ValueError(problem)
        return kind, None

    def _brackets(self) -> str:
        if not self._comes("("):
            return ""
        start = self._place
        self._place = self._text.find(")", start) + 1 or len(self._text)
        found = self._text[start : self._place]
        self._skip()
        return found

    def _parts(self, nested: type[NestedType], level: int) -> NestedType:
        kind: NestedType
        self._take("<")
        if nested is StructType:
            fields = [] if self._comes(">") else [self._field(level)]
            while self._comes(","):
                self._take(",")
                fields.append(self._field(level))
            kind = StructType(tuple(fields))
        elif nested is ListType:
            kind = ListType(self._part(ELEMENT, level))
        else:
            key = self._part(KEY, level)
            self._take(",")
            kind = MapType(key, self._part(VALUE, level))
        self._take(">")
        return kind

    def _field(self, level: int) -> Field:
        self._skip()
        name = self._word()
        self._take(":")
        if not is_name(name):
            raise ValueError(
                f"the field {name} {NAME_RULE}; a key of another form is read in the long form, as "
                f"fields: [{{name: …, source: {name}, type: …}}]"
            )
        part = self._part(name, level)
        return dataclasses.replace(part, source=name)

    def _part(self, name: str, level: int) -> Field:
        kind, length = self._type(level + 1)
        return Field(name=name, type=kind, length=length)

    def _word(self) -> str:
        match = _WORD.match(self._text, self._place)
        word = match[0] if match else ""
        self._place += len(word)
        self._skip()
        return word

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._place)
        self._place = match.end() if match else self._place

    def _comes(self, sign: str) -> bool:
        return self._text.startswith(sign, self._place)

    def _take(self, sign: str) -> None:
        if not self._comes(sign):
            self._expected(sign)
        self._place += len(sign)
        self._skip()

    def _expected(self, sign: str) -> None:
        found = self._text[self._place : self._place + 10] or "the end"
        raise ValueError(f"{sign} is expected at character {self._place + 1} of the type, and there is {found}")


def _split_type(pattern: re.Pattern[str], text: str) -> tuple[str, list[int]]:
    """Splits a type into its name and its parameters. Returns "" for other text."""
    match = pattern.fullmatch(text)
    if match is None:
        return "", []
    keyword, *numbers = match.groups()
    return keyword, [int(number) for number in numbers if number is not None]


@cache
def _parameters(kind: type[LeafType]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _usage(kind: type[LeafType]) -> str:
    letters = ", ".join(name[0] for name in _parameters(kind))
    return f"{kind.keyword}({letters})" if letters else kind.keyword
