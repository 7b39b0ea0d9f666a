"""Keys of table files, and their JSON Schema, against the parser: names, defaults, examples and bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.tables.file_keys import KEYS, Amount, Choice, Flag, TableFileKey, Whole
from prism_assets.domain.tables.file_schema import table_file_schema

LOG = """
schema: log
table: events
streams:
  - {name: web, url: "s3://staging/web/"}
columns:
  - {name: time, type: timestamp}
  - {name: day, type: date}
  - {name: user_id, type: bigint}
  - {name: kind, type: string}
"""
JOIN = """
schema: log
table: request
key: [request_id]
groups: {front: {sequence: [sent_at]}, back: {}}
window: 3h
lateness: 1h
streams:
  - {name: front, url: "s3://staging/front/", group: front}
columns:
  - {name: time, type: timestamp}
  - {name: request_id, type: string}
  - {name: sent_at, type: timestamp}
  - {name: kind, type: string, group: back}
"""
TABLES = Path(__file__).parents[3] / "tables"
SCHEMA = jsonschema.Draft7Validator(table_file_schema())
BESIDE: dict[str, dict[str, Any]] = {
    "columns[].source_offset": {"type": "timestamp"},
    "columns[].time_unit": {"type": "timestamp"},
    "columns[].length": {"type": "string"},
    "columns[].fields[]": {"type": "struct"},
    "columns[].element": {"type": "list"},
    "columns[].key": {"type": "map", "value": {"type": "double"}},
    "columns[].fields[].source_offset": {"type": "timestamp"},
    "columns[].fields[].time_unit": {"type": "timestamp"},
    "columns[].fields[].length": {"type": "string"},
    "columns[].fields[].fields[]": {"type": "struct"},
    "columns[].fields[].element": {"type": "list"},
    "columns[].fields[].key": {"type": "map", "value": {"type": "double"}},
    "columns[].fields[].value": {"type": "map"},
    "columns[].merge": {"group": "front"},
    "streams[].format.protobuf": {},
    "streams[].format.json": {},
    "freshness.warn": {"fail": "2h"},
    "reject[].when": {"reason": "negative_id"},
    "reject[].reason": {"when": "user_id < 0"},
    "streams[].columns[].source": {"name": "user_id"},
    "streams[].columns[].value": {"name": "user_id"},
    "streams[].columns[].name": {"source": "uid"},
    "streams[].format.protobuf.descriptor": {"message": "shop.PageView"},
    "streams[].format.protobuf.message": {"descriptor": "page.desc"},
    "streams[].route.key": {},
    "streams[].route.by": {"in": ["signup"]},
    "streams[].route.in": {"by": "$.kind"},
    "streams[].route.otherwise": {"key": "*/ALB/*"},
}
"""Companions a key needs in its mapping."""
OF_TOPICS = {"topic", "cluster", "start", "tombstones", "spool_days", "flush"}


def keys(*forms: type) -> list[Any]:
    """The keys of some forms, by their paths."""
    return [pytest.param(key, id=key.path) for key in KEYS if not forms or isinstance(key.form, forms)]


def file_with(key: TableFileKey, value: Any) -> dict[str, Any]:
    """Returns a table file with a value of a key, in a new entry of its lists."""
    top: dict[str, Any] = yaml.safe_load(JOIN if key.joins_only else LOG)
    if key.path.startswith("columns[].fields[]."):
        part = {"name": "part", "type": "bigint", **BESIDE.get(key.path, {}), key.name: value}
        top["columns"].append({"name": "added", "type": "struct", "fields": [part]})
    elif key.path.startswith("columns[]."):
        entry = {"name": "added", "type": "bigint", **BESIDE.get(key.path, {}), key.name: value}
        top["columns"].append(entry)
    elif key.path == "streams[].columns[]" or key.path.startswith("streams[].columns[]."):
        own = value if key.path.endswith("[]") else [{**BESIDE[key.path], key.name: value}]
        top["streams"][0]["columns"] = own
    elif key.path.startswith("streams[].format.protobuf."):
        top["streams"][0]["format"] = {"protobuf": {**BESIDE[key.path], key.name: value}}
    elif key.path.startswith("streams[].format.csv."):
        is_named = key.name == "columns" or (key.name == "header" and value is not True)
        names = {"columns": ["time"]} if is_named else {"header": True}
        top["streams"][0]["format"] = {"csv": {**names, key.name: value}}
    elif key.path == "streams[].format.nulls":
        top["streams"][0]["format"] = {"regex": "(?P<time>.*)", "nulls": value}
    elif key.path.startswith("streams[].route."):
        top["streams"][0]["route"] = {**BESIDE[key.path], key.name: value}
    elif key.path == "streams[].format.json.records":
        top["streams"][0]["format"] = {"json": {"records": value}}
    elif key.parent == "streams[].format":
        top["streams"][0]["format"] = {key.name: value}
    elif key.parent == "streams[].flush":
        top["streams"][0] = {"name": "app", "topic": "app.events", "flush": {key.name: value}}
    elif key.parent == "streams[]" and key.name in OF_TOPICS:
        top["streams"][0] = {"name": "app", "topic": "app.events", key.name: value}
    elif key.path.startswith("streams[]."):
        top["streams"][0][key.name] = value
    elif key.path.startswith("reject[]."):
        top["reject"] = [{**BESIDE[key.path], key.name: value}]
    elif key.path.startswith("groups.*."):
        top["groups"]["front"][key.name] = value
    elif key.parent:
        top[key.parent] = {**BESIDE.get(key.path, {}), key.name: value}
    else:
        top[key.name] = value
    return top


def parsed(top: dict[str, Any]) -> TableDefinition:
    return parse_table_file(yaml.safe_dump(top), "t.yaml", lambda _name: b"descriptor")


@pytest.mark.parametrize("key", keys())
def test_the_example_of_a_key_is_taken_by_the_parser_and_by_the_schema(key: TableFileKey) -> None:
    top = file_with(key, yaml.safe_load(key.example))
    assert SCHEMA.is_valid(top), list(SCHEMA.iter_errors(top))
    parsed(top)


@pytest.mark.parametrize("key", [item for item in keys() if item.values[0].default is not None])
def test_a_default_means_the_same_as_no_key(key: TableFileKey) -> None:
    said = parsed(file_with(key, yaml.safe_load(key.default or "")))
    top = file_with(key, None)
    _remove(top, key.name)
    assert said.to_json() == parsed(top).to_json()


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"cvs": {"header": True}}, "format.cvs: "),
        ({}, "format: must be json, "),
        ({"nulls": ["-"]}, "format.nulls: stands beside regex, or inside csv"),
    ],
)
def test_a_mistyped_format_is_one_problem(form: dict[str, Any], problem: str) -> None:
    top = yaml.safe_load(LOG)
    top["streams"][0]["format"] = form
    with pytest.raises(DefinitionError) as refused:
        parsed(top)
    (line,) = str(refused.value).splitlines()
    assert f": streams[0].{problem}" in line


@pytest.mark.parametrize("key", keys(Whole, Amount))
def test_the_bounds_of_a_number_are_those_of_the_parser(key: TableFileKey) -> None:
    assert isinstance(key.form, Whole | Amount)
    for wrong in (key.form.low - 1, key.form.high + 1):
        top = file_with(key, wrong)
        assert not SCHEMA.is_valid(top)
        with pytest.raises(DefinitionError, match=rf"{key.name}: must (lie between|be)"):
            parsed(top)


@pytest.mark.parametrize("key", keys(Choice, Flag))
def test_another_word_is_refused_by_the_parser_and_by_the_schema(key: TableFileKey) -> None:
    top = file_with(key, "nonsense")
    assert not SCHEMA.is_valid(top)
    with pytest.raises(DefinitionError, match=rf"{key.name}: must be"):
        parsed(top)


@pytest.mark.parametrize("stream", [{"name": "app"}, {"name": "app", "topic": "app", "url": "s3://staging/web/"}])
def test_a_stream_names_a_prefix_or_a_topic_in_the_parser_and_in_the_schema(stream: dict[str, Any]) -> None:
    top = yaml.safe_load(LOG)
    top["streams"] = [stream]
    assert not SCHEMA.is_valid(top)
    with pytest.raises(DefinitionError, match=r"streams\[0\]\.url: must "):
        parsed(top)


def test_an_unknown_key_is_refused_by_the_parser_and_by_the_schema() -> None:
    top = yaml.safe_load(LOG)
    top["merge"] = {"intervall": 60}
    assert not SCHEMA.is_valid(top)
    with pytest.raises(DefinitionError, match=r"merge\.intervall: is not a known field"):
        parsed(top)


def test_the_schema_takes_a_retired_table_without_streams_and_no_other() -> None:
    top = yaml.safe_load(LOG)
    del top["streams"]
    assert not SCHEMA.is_valid(top)
    assert SCHEMA.is_valid({**top, "retired": True})


@pytest.mark.parametrize("file", sorted(TABLES.glob("*/*.yaml")), ids=lambda file: file.stem)
def test_the_table_files_of_the_project_are_valid_and_name_the_schema(file: Path) -> None:
    text = file.read_text()
    assert SCHEMA.is_valid(yaml.safe_load(text))
    named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert json.loads((file.parent / named).read_text()) == table_file_schema()


def _remove(value: Any, name: str) -> None:
    """Takes a key without a value out of a file."""
    if isinstance(value, dict):
        if name in value and value[name] is None:
            del value[name]
        for item in value.values():
            _remove(item, name)
    elif isinstance(value, list):
        for item in value:
            _remove(item, name)
