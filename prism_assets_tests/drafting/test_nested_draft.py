"""Drafts of nested values: structs, lists and maps where they keep almost everything, json elsewhere."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prism_assets.domain.columns.types import levels_of, part_count
from prism_assets.domain.names import TableName
from prism_assets.domain.service_limits import MOST_PARTS
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.draft import draft_table
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.drafting.draft import Draft, draft_file
from prism_assets.drafting.trial import Trial, read_table, try_table
from prism_assets.kernels.json.survey import survey
from prism_assets.objectstore.config import StoreConfig
from prism_assets_tests.builders import utc

NOW = utc("2026-03-01T12:00")
NOWHERE = StoreConfig(local_root="/nowhere")
TIME = {"time": "2026-03-01T10:00:00Z"}


def drafted(*values: Any) -> str:
    """Returns the draft for lines with these values of the key `v`."""
    lines = (json.dumps({**TIME, "v": value}).encode() for value in values)
    return draft_table(TableName("log", "events"), survey(lines), "s3://staging/in/", "sample", NOW).text


def table(*values: Any) -> TableDefinition:
    return parse_table_file(drafted(*values), "events.yaml")


def type_of(*values: Any) -> str:
    """Returns the type of the column `v` for these values."""
    return table(*values).column("v").type.name


MANY = {f"k{number}": number for number in range(65)}
NUMBERED = {f"user_{number}": number for number in range(12)}
EIGHT_DEEP: Any = 1
for _ in range(8):
    EIGHT_DEEP = {"a": EIGHT_DEEP}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"id": 1, "name": "x"}], "struct<id: bigint, name: string(256)>"),
        ([{"id": 1}, {"name": "x"}, None], "struct<id: bigint, name: string(256)>"),
        ([{"a": {"b": [1.5]}}], "struct<a: struct<b: list<double>>>"),
        ([{"a": 1}] * 99 + ["x"], "struct<a: bigint>"),
        ([{"a": 1}] * 98 + ["x"] * 2, "json"),
        ([{}], "json"),
        ([{"a": None}], "struct<a: json>"),
        ([{"a": 1}, {"a": "x"}], "struct<a: string(256)>"),
        ([{"a": [1, "x"]}], "struct<a: json>"),
        ([[1, 2], [], None], "list<bigint>"),
        ([[1]] * 99 + [1], "list<bigint>"),
        ([[1]] * 98 + [1] * 2, "json"),
        ([[]], "json"),
        ([[None]], "json"),
        ([[1, "x"]], "json"),
        ([["2026-03-01T10:00:00Z"]], "list<timestamp>"),
        ([[[1.5, 2]]], "list<list<double>>"),
        ([[{"sku": "a"}, {"count": 2}]], "list<struct<sku: string(256), count: bigint>>"),
        ([MANY], "map<string, bigint>"),
        ([{"203.0.113.7": 1}], "map<string, bigint>"),
        ([{"app.kubernetes.io/name": "x"}], "map<string, string(256)>"),
        ([{"0198f3aa": 1, "b1946ac9": 2.5}], "map<string, double>"),
        ([NUMBERED], "map<string, bigint>"),
        ([{**MANY, "k0": "x"}], "json"),
        ([{**MANY, "k0": {}}], "json"),
        ([{"a b": 1, "c": "x"}], "json"),
        ([EIGHT_DEEP], f"{'struct<a: ' * 7}json{'>' * 7}"),
    ],
)
def test_nested_values_get_the_type_that_keeps_almost_all_of_them(values: list[Any], expected: str) -> None:
    assert type_of(*values) == expected


def test_a_key_that_is_no_name_of_a_field_is_read_in_the_long_form() -> None:
    text = drafted({"userName": "x", "plans": [{"startedAt": 1772362800123, "@type": "y"}], "a": {"b": 1}})
    assert text.splitlines()[-12:] == [
        "  - name: v  # 1 of 1 lines",
        "    type: struct",
        "    fields:",
        "      - {name: user_name, type: string, source: userName, length: 256}",
        "      - name: plans",
        "        type: list",
        "        element:",
        "          type: struct",
        "          fields:",
        "            - {name: started_at, type: timestamp, source: startedAt, time_unit: milliseconds}",
        '            - {name: type, type: string, source: "@type", length: 256}',
        '      - {name: a, type: "struct<b: bigint>"}',
    ]


def test_keys_of_a_struct_that_would_have_one_name_get_numbers() -> None:
    kind = table({"userId": 1, "user_id": 2, "UserID": 3}).column("v").type
    assert [(part.name, part.source) for part in kind.parts] == [
        ("user_id", "userId"), ("user_id_2", "user_id"), ("user_id_3", "UserID"),
    ]  # fmt: skip


def test_values_that_a_part_would_lose_are_told_by_path() -> None:
    values: list[Any] = [{"a": 1, "tags": ["x"], "labels": {"x-y": True}}] * 200
    values[7] = {"a": "x", "tags": "x", "labels": {"x-y": 7}}
    values[8] = 5
    lines = [json.dumps({**TIME, "v": value}).encode() for value in values]
    draft = draft_table(TableName("log", "events"), survey(lines), "s3://staging/in/", "sample", NOW)
    assert draft.losses == (
        "v: 1 value is null, of another kind",
        "v.a: 1 value is null, of another kind",
        "v.tags: 1 value is null, of another kind",
        "v.labels{}: 1 value is null, of another kind",
    )


def test_a_key_twice_inside_a_value_makes_it_json_as_a_struct_would_quarantine_the_line() -> None:
    lines = [b'{"time": "2026-03-01T10:00:00Z", "v": {"a": 1, "a": 2}}']
    text = draft_table(TableName("log", "events"), survey(lines), "s3://staging/in/", "sample", NOW).text
    assert "{name: v, type: json, length: 65535}" in text


def test_a_table_has_no_more_parts_than_it_takes_and_the_largest_column_is_json() -> None:
    names = [f"{first}{second}" for first in "abc" for second in string.ascii_lowercase]
    line = {f"c{number}": dict.fromkeys(names[: 20 + number], 1) for number in range(40)}
    found = parse_table_file(
        draft_table(
            TableName("log", "events"), survey([json.dumps({**TIME, **line}).encode()]), "s3://in-it/", "sample", NOW
        ).text,
        "events.yaml",
    )
    assert 0 < sum(part_count(column.type) for column in found.columns) <= MOST_PARTS
    assert found.column("c39").type.name == "json"
    assert found.column("c0").type.keyword == "struct"


def tried(root: Path, content: bytes) -> tuple[Draft, Trial]:
    """Drafts a table from an object, and tries the draft on it."""
    sample = root / "sample"
    sample.write_bytes(content)
    folder = root / "tables"
    draft = draft_file(NOWHERE, "log.events", str(sample), url="s3://staging/in/", folder=folder, now=NOW)
    assert draft.path is not None
    trial = try_table(NOWHERE, read_table(draft.path), str(sample), now=NOW)
    draft.path.unlink()
    return draft, trial


def test_keys_around_the_records_have_columns_after_those_of_the_records(tmp_path: Path) -> None:
    record = {**TIME, "id": 1}
    document = {
        "id": "d",
        "resourceLogs": [{"resource": {"serviceName": "shop"}, "scopeLogs": [{"at": 7, "records": [record]}]}],
    }
    draft, trial = tried(tmp_path, json.dumps(document).encode() * 2)
    assert trial.problem is None
    assert dict(trial.rows_shown[1].values) == {
        "time": "2026-03-01T10:00:00.000Z", "id": 1, "outer_id": "d", "resource": {"service_name": "shop"}, "at": 7,
    }  # fmt: skip
    assert 'source: "$outer.resourceLogs.scopeLogs.at"}  # 2 around records' in draft.text


def test_a_key_around_records_named_like_the_computed_time_has_another_name(tmp_path: Path) -> None:
    document = {"time": "x", "Records": [{"timeUnixNano": "1772359222123456789"}]}
    draft, trial = tried(tmp_path, json.dumps(document).encode() * 2)
    assert (trial.rows, trial.problem) == (2, None)
    assert 'source: "$outer.time"' in draft.text


def test_a_key_around_records_named_like_their_time_keeps_its_own_type(tmp_path: Path) -> None:
    document = {"timeUnixNano": "of the batch", "Records": [{"timeUnixNano": "1772359222123456789"}]}
    _, trial = tried(tmp_path, json.dumps(document).encode() * 2)
    assert (trial.rows, trial.problem) == (2, None)
    assert dict(trial.rows_shown[0].values)["outer_time_unix_nano"] == "of the batch"


def test_a_time_inside_objects_is_the_time_of_lines_without_another(tmp_path: Path) -> None:
    line = {
        "id": 1,
        "event": {"a.b": {"createdAt": "2026-03-01T10:00:00Z"}, "seen": [{"at": "2026-03-01"}]},
        "time": "x",
    }
    draft, trial = tried(tmp_path, json.dumps(line).encode() + b"\n")
    assert '{name: time_2, type: timestamp, source: "$.event[\\"a.b\\"].createdAt", required: true}' in draft.text
    assert (trial.rows, trial.problem) == (1, None)
    assert trial.rows_shown[0].values["time_2"] == "2026-03-01T10:00:00.000Z"
    shown = "partition: {column: time_2}"
    assert shown in draft.text


def test_documents_too_large_to_be_looked_at_have_no_columns_around_and_the_draft_says_so(tmp_path: Path) -> None:
    document = {"Records": [{**TIME, "note": "x" * 100}] * 10_000, "owner": "x"}
    draft, trial = tried(tmp_path, json.dumps(document).encode())
    assert "# Keys around the records of documents above 1 MiB were not looked at." in draft.text
    assert trial.problem is None


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("aBc é-_\0"), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from(["a", "B", "a b", "é"]), nested, max_size=4), min_size=1, max_size=6))
def test_a_draft_of_any_lines_makes_rows_of_all(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    body = b"".join(json.dumps({**TIME, **line}).encode() + b"\n" for line in lines)
    draft, trial = tried(tmp_path, body)
    assert (trial.rows, trial.problem, trial.value_errors, draft.losses) == (len(lines), None, (), ())
    assert all(levels_of(column.type) <= 8 for column in parse_table_file(draft.text, "t.yaml").columns)
