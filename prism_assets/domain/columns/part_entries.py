"""Reads types in table files: one word, Spark's notation, or the long form with a mapping for each part."""

from __future__ import annotations

import re
from typing import Any

import yaml

from prism_assets.domain.columns.column import TIME_UNITS
from prism_assets.domain.columns.parts import paths_of
from prism_assets.domain.columns.type_names import (
    ELEMENT,
    KEY,
    MOST_LEVELS,
    VALUE,
    nested_keyword,
    nested_problem,
    parse_type,
)
from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    ColumnType,
    Field,
    ListType,
    MapType,
    StringType,
    StructType,
    levels_of,
)
from prism_assets.domain.names import NAME_RULE, is_name, must_be_one_of
from prism_assets.domain.service_limits import GLUE_TYPE
from prism_assets.domain.streams.sources import Key, parse_source
from prism_assets.domain.tables.file_keys import known_keys
from prism_assets.domain.tables.yaml_mapping import YamlMapping, check_unique, is_unstorable

FIELDS = "fields"
_OF_STRUCTS = ("name", "source", "was")
_PARTS = (FIELDS, ELEMENT, KEY, VALUE)
_OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d")
_NO_NANOSECONDS = (
    "cannot be nanoseconds: read the key as a bigint, and make the time of that by value: make_timestamp_ns(…)"
)


def read_type(entry: YamlMapping) -> ColumnType | None:
    """Returns the type of a column or a part, None for an unknown one."""
    kind = _written(entry)
    if kind is None:
        return None
    if problem := kind.problem or nested_problem(kind):
        entry.complain("type", problem)
    elif levels_of(kind) > MOST_LEVELS:
        entry.complain("type", f"has {levels_of(kind)} levels; at most {MOST_LEVELS}: make the inner ones json")
    return kind


def check_column_type(entry: YamlMapping, name: str, kind: ColumnType) -> None:
    """Records the problems of the whole type of a column."""
    if len(kind.glue_type(DEFAULT_LENGTH)) > GLUE_TYPE:
        entry.complain("type", f"has more than {GLUE_TYPE:,} characters in Glue: make some of its parts json")
    for path, part in paths_of(name, kind):
        if has_expression(entry) and part.source_offset:
            entry.complain("type", f"{path} has a source_offset, and expressions give times in UTC: remove it")


def has_expression(entry: YamlMapping) -> bool:
    """Whether `value` is an expression. The values of a map are a mapping."""
    return VALUE in entry.children and not isinstance(entry.children[VALUE], yaml.MappingNode)


def _written(entry: YamlMapping) -> ColumnType | None:
    text: str = entry.text("type", "") or ""
    nested = nested_keyword(text)
    given = [key for key in _PARTS if key in entry.children and (key != VALUE or not has_expression(entry))]
    if nested is None or not given:
        for key in given:
            entry.complain(key, "belongs to the long form: type struct, list or map, without brackets")
        return _parsed(entry, text)
    wanted = {StructType: [FIELDS], ListType: [ELEMENT], MapType: [KEY, VALUE]}[nested]
    for key in given:
        if key not in wanted:
            entry.complain(key, f"is no part of a {nested.keyword}, which has {' and '.join(wanted)}")
    if nested is StructType:
        return StructType(_fields(entry))
    if nested is ListType:
        return ListType(_part(entry, ELEMENT))
    return MapType(_part(entry, KEY), _part(entry, VALUE))


def _parsed(entry: YamlMapping, text: str) -> ColumnType | None:
    try:
        return parse_type(text)
    except ValueError as error:
        entry.complain("type", str(error))
        return None


def _fields(entry: YamlMapping) -> tuple[Field, ...]:
    found = entry.sequence(FIELDS)
    check_unique(found, "name", lambda field: str(field.read("name", str, "", "text")))
    return tuple(map(_field, found))


def _field(entry: YamlMapping) -> Field:
    entry.only(known_keys("columns[].fields[]"))
    name: str = entry.text("name")
    if "name" in entry.children and not is_name(name):
        entry.complain("name", f"{NAME_RULE}; say with source which key it reads: {{name: …, source: {name}}}")
    kind, was = read_type(entry), read_was(entry, name, "field")
    return Field(name=name, was=was, source=_source(entry, was or name), **_options(entry, kind))


def read_was(entry: YamlMapping, name: str, what: str) -> str | None:
    """Returns the former name of a column or a field. It may stay in the file after the rename."""
    was: str | None = entry.text("was", None)
    if was is None:
        return None
    if not is_name(was):
        entry.complain("was", f"must be the former name of the {what}, which {NAME_RULE}")
    elif was == name:
        entry.complain("was", f"is the current name of the {what}; give the former one")
    return was


def _source(entry: YamlMapping, name: str) -> str:
    """Returns the one key that a field reads, which is by default its name, or its former one."""
    text: str = entry.text("source", name) or name
    try:
        source = parse_source(text)
    except ValueError as error:
        entry.complain("source", str(error))
        return name
    if not isinstance(source, Key):
        entry.complain("source", "a field reads one key of its object: no path, no pattern, no fact")
        return name
    if is_unstorable(source.name) and not is_unstorable(text):  # else it is reported already
        entry.complain("source", "names a key that has a NUL or half a character in it")
    return source.name


def _part(entry: YamlMapping, key: str) -> Field:
    """Reads the element of a list, or the key or the value of a map. A key without a type is a text."""
    if key not in entry.children and key != KEY:
        entry.complain(key, "is missing")
        return Field(name=key, type=StringType(), length=DEFAULT_LENGTH)
    part = entry.mapping(key)
    part.only({name for name in known_keys("columns[].fields[]") if name not in _OF_STRUCTS})
    is_text = key == KEY and "type" not in part.children
    return Field(name=key, **_options(part, StringType() if is_text else read_type(part)))


def _options(entry: YamlMapping, kind: ColumnType | None) -> dict[str, Any]:
    options = read_options(entry, kind)
    return {**options, "type": kind or StringType(), "sensitive": entry.flag("sensitive", False)}


def read_options(entry: YamlMapping, kind: ColumnType | None) -> dict[str, Any]:
    """Returns the length and the notation of times of a column or a part."""
    if (offset := entry.text("source_offset", None)) and not _OFFSET.fullmatch(offset):
        entry.complain("source_offset", 'must look like "+09:00"')
    if (unit := entry.text("time_unit", None)) and unit not in TIME_UNITS:
        entry.complain("time_unit", _NO_NANOSECONDS if unit == "nanoseconds" else must_be_one_of(unit, TIME_UNITS))
    if kind is not None and not kind.takes_time_options:
        for key in ("source_offset", "time_unit"):
            entry.refuse(key, f"a {kind} column has none: it says how a timestamp or a date is read")
    takes_length = kind is not None and kind.takes_length
    length = entry.number("length", DEFAULT_LENGTH if takes_length else None)
    if "length" in entry.children and not takes_length:
        entry.complain("length", f"a {kind or entry.text('type', '')} column has no length")
    return {"length": length, "source_offset": offset, "time_unit": unit}
