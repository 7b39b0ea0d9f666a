"""The JSON Schema of table files, for editors: it completes keys and words, and marks wrong ones while one types."""

from __future__ import annotations

import re
from typing import Any

import yaml

from prism_assets.domain.tables.file_keys import (
    LONGEST_EXPRESSION,
    Amount,
    Choice,
    Duration,
    Expression,
    Flag,
    Form,
    NamedSections,
    Part,
    Parts,
    Section,
    Sections,
    Size,
    Text,
    Texts,
    Whole,
    children_of,
)

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The dialect that the YAML language server of editors reads."""
_DURATION = r"^\d{1,6}[smhd]$"
_SIZE = r"^\d{1,10}([KMG]iB)?$"
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_OF_PARTS = "columns[].fields[]"
_FIELD, _PART = "field", "part"
"""Names of schemas that name themselves, because types nest."""
Schema = dict[str, Any]


def table_file_schema() -> Schema:
    """The JSON Schema of a table file."""
    return {
        "$schema": DIALECT,
        "title": "A table file of prism_assets",
        **_mapping(""),
        "definitions": {_FIELD: _mapping(_OF_PARTS), _PART: _part()},
        "anyOf": [{"required": ["streams"]}, {"properties": {"retired": {"const": True}}, "required": ["retired"]}],
    }


def _part() -> Schema:
    """The schema of a part without a name: the element of a list, the key or the value of a map."""
    field = _mapping(_OF_PARTS)
    properties = {name: schema for name, schema in field["properties"].items() if name not in ("name", "source", "was")}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _mapping(path: str) -> Schema:
    keys = list(children_of(path))
    required = [key.name for key in keys if key.required and key.path != "streams[]"]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: {**_schema_of(key.form, key.path), **_notes(key.says, key.default)} for key in keys},
        **({"required": required} if required else {}),
        **({"oneOf": [{"required": ["url"]}, {"required": ["topic"]}]} if path == "streams[]" else {}),
    }


def _notes(says: str, default: str | None) -> Schema:
    text = _LINK.sub(r"\1", says).replace("`", "")
    return {"description": text, **({} if default is None else {"default": yaml.safe_load(default)})}


def _schema_of(form: Form, path: str) -> Schema:
    match form:
        case Text():
            pattern = {} if form.pattern is None else {"pattern": form.pattern}
            return {"type": "string", **pattern, **({} if form.longest is None else {"maxLength": form.longest})}
        case Expression():
            return {"type": ["string", "boolean", "number"], "minLength": 1, "maxLength": LONGEST_EXPRESSION}
        case Flag():
            return {"type": "boolean"}
        case Whole():
            return {"type": "integer", "minimum": form.low, "maximum": form.high}
        case Amount():
            return {"type": "number", "minimum": form.low, "maximum": form.high}
        case Size():
            number = {"type": "integer", "minimum": form.low, "maximum": form.high}
            return {"anyOf": [number, {"type": "string", "pattern": _SIZE}]}
        case Duration():
            return _any_of(list(form.words), {"type": "string", "pattern": _DURATION})
        case Choice():
            return {"enum": list(form.words)}
        case Texts():
            texts = {"type": "array", "items": {"type": "string"}}
            return {"anyOf": [{"type": "string"}, texts]} if form.or_one else texts
        case Section():
            return _any_of([*form.words, *([True, False] if form.or_flag else [])], _mapping(path))
        case Sections():
            return {"type": "array", "minItems": 1, "items": _mapping(path)}
        case NamedSections():
            section = {"anyOf": [_mapping(f"{path}.*"), {"type": "null"}]}
            return {"type": "object", "minProperties": 1, "additionalProperties": section}
        case Parts():
            return {"type": "array", "minItems": 1, "items": {"$ref": f"#/definitions/{_FIELD}"}}
        case Part(or_expression=or_expression):
            part = {"$ref": f"#/definitions/{_PART}"}
            return {"anyOf": [_schema_of(Expression(), path), part]} if or_expression else {"allOf": [part]}


def _any_of(words: list[str | bool], schema: Schema) -> Schema:
    return {"anyOf": [{"enum": words}, schema]} if words else schema
