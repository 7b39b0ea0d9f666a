"""Cases beside a table file: lines with their expected result."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.errors import WrongUse
from prism_assets.drafting.cases import cases_of, find_files, run_cases
from prism_assets.drafting.proposals import propose_cases
from prism_assets.drafting.trial import read_table
from prism_assets.objectstore.config import StoreConfig
from prism_assets_tests.builders import a_table, as_lines, utc
from prism_assets_tests.kernels.messages.builders import AMessage, a_spool_object

NOWHERE = StoreConfig(local_root="/nowhere")
NOW = utc("2026-03-01T12:00")
COLUMNS = (
    "{name: status, type: smallint}",
    '{name: amount, type: "decimal(6,2)"}',
    "{name: day, type: date}",
    "{name: ratio, type: real}",
    "{name: ok, type: boolean}",
    "{name: name, type: string, length: 20}",
    "{name: more, type: json}",
    "{name: number, type: bigint, source: '@line'}",
    "{name: where, type: string, source: '@object'}",
    "{name: who, type: string, length: 64, value: \"pseudonym(name, 'mail')\"}",
)
TIME = "2026-03-01T11:00:00Z"
RULES = 'keep: "coalesce(status, 0) < 500"\nreject: [{when: "id < 0", reason: negative}]\n'


def a_file(root: Path, *cases: str, more: str = RULES, columns: tuple[str, ...] = COLUMNS) -> Path:
    path = root / "events.yaml"
    path.write_text(a_table(columns=columns) + more)
    (root / "events.test.jsonl").write_text("".join(f"{case}\n" for case in cases))
    return path


def failures(root: Path, *cases: str) -> list[str]:
    path = a_file(root, *cases)
    return [line.removeprefix(f"{cases_of(path)}:") for line in run_cases(path).failures]


def test_cases_that_are_as_they_should_be_pass(tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        f'{{"about": "a row", "line": {{"time": "{TIME}", "status": "200", "amount": 1.109, "day": "2026-03-01"}}, '
        '"row": {"time": "2026-03-01T20:00:00+09:00", "status": 200, "amount": 1.10, "day": "2026-03-01"}}',
        "",
        f'{{"line": {{"time": "{TIME}", "more": {{"a": 1.10, "b": [true]}}}}, '
        '"row": {"more": {"b": [true], "a": 1.10}, "number": 3, "id": null, "where": "s3://staging/events/events.test.jsonl"}}',
        f'{{"line": {{"time": "{TIME}", "status": 503}}, "filtered": true}}',
        f'{{"line": {{"time": "{TIME}", "id": -1}}, "quarantined": "negative"}}',
        '{"line": {"id": 1}, "quarantined": "missing_time"}',
        '{"line": "no JSON", "quarantined": "bad_json"}',
        f'{{"line": {{"time": "{TIME}"}}, "received": "2026-05-01T00:00:00Z", "quarantined": "too_old"}}',
        f'{{"line": {{"time": "{TIME}"}}, "row": {{}}}}',
    )
    report = run_cases(path)
    assert report.failures == ()
    assert report.cases == 8


def test_a_case_that_differs_names_file_line_column_and_both_values(tmp_path: Path) -> None:
    assert failures(
        tmp_path,
        f'{{"line": {{"time": "{TIME}", "status": 404}}, "row": {{"status": 200, "id": null}}}}',
        f'{{"line": {{"time": "{TIME}", "status": 503}}, "row": {{}}}}',
        f'{{"line": {{"time": "{TIME}"}}, "filtered": true}}',
        '{"line": {}, "quarantined": "bad_time"}',
        f'{{"line": {{"time": "{TIME}", "more": {{"a": 1.1}}}}, "row": {{"more": {{"a": 1.10}}}}}}',
    ) == [
        "1: status: expected 200, got 404",
        "2: expected a row, got a filtered line",
        "3: expected a filtered line, got a row",
        "4: expected a line quarantined as bad_time, got a line quarantined as missing_time (column time)",
        '5: more: expected {"a": 1.10}, got {"a":1.1}',
    ]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("nonsense", "a case is one JSON object a line, and this is none: bad_json"),
        ('{"line": {}}', "a case has a `line`, and one of `row`, `quarantined`, `filtered` and `elsewhere`"),
        ('{"row": {}}', "a case has a `line`, and one of `row`, `quarantined`, `filtered` and `elsewhere`"),
        ('{"line": {}, "rwo": {}}', "rwo: unknown key; did you mean row?"),
        ('{"line": {}, "row": {"statsu": 1}}', "row: there is no column statsu; did you mean status?"),
        ('{"line": {}, "row": []}', "row: must be an object with the columns that are judged"),
        ('{"line": {}, "filtered": 1}', "filtered: must be true"),
        ('{"line": {}, "elsewhere": false}', "elsewhere: must be true"),
        ('{"line": {}, "quarantined": true}', "quarantined: must be a reason"),
        ('{"line": {}, "row": {}, "received": "today"}', "received: must look like 2026-03-01T12:00:00Z"),
        ('{"line": "a\\nb", "row": {}}', "line: a text must be one line that is not blank"),
        (f'{{"line": {{"time": "{TIME}"}}, "row": {{"status": "many"}}}}', "status: the expected value \"many\" is no "
         "value of smallint: unfit"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_case_is_told_with_what_is_wrong(tmp_path: Path, case: str, said: str) -> None:
    (told,) = failures(tmp_path, case)
    assert told.startswith(f"1: {said}")


def routed(path: Path, route: str) -> Path:
    """Gives the stream of a table file a route."""
    path.write_text(path.read_text().replace('events/"}', f'events/", route: {route}}}'))
    return path


def test_a_line_of_another_table_has_a_fate_of_its_own(tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        f'{{"line": {{"time": "{TIME}", "name": "a"}}, "row": {{}}}}',
        f'{{"line": {{"time": "{TIME}", "name": "b"}}, "elsewhere": true}}',
        f'{{"line": {{"time": "{TIME}", "name": "b"}}, "filtered": true}}',
        '{"line": "no JSON", "elsewhere": true}',
        f'{{"line": {{"time": "{TIME}", "name": "a"}}, "elsewhere": true}}',
        f'{{"line": {{"time": "{TIME}", "name": "a", "status": 503}}, "filtered": true}}',
    )
    assert run_cases(routed(path, "{by: name, in: [a]}")).failures == (
        f"{cases_of(path)}:3: expected a filtered line, got a line of another table",
        f"{cases_of(path)}:5: expected a line of another table, got a row",
    )


DOCUMENTS = """\
schema: log
table: events
streams: [{name: events, url: "s3://staging/in/", format: {json: {records: "$.groups[*].events[*]"}}}]
columns:
  - {name: time, type: timestamp, source: $outer.sent}
  - {name: id, type: bigint}
  - {name: owner, type: string, source: '$outer.groups.owner["first name"]'}
  - {name: rest, type: json, source: "*"}
"""


def test_cases_of_documents_have_the_values_around_the_record(tmp_path: Path) -> None:
    """Without them the proposed cases said that each record lacks its time."""
    path = tmp_path / "events.yaml"
    path.write_text(DOCUMENTS)
    groups = [{"owner": {"first name": name}, "events": [{"id": 1, "a": 2}, 7]} for name in ("ann", "bob")]
    (tmp_path / "sample.json").write_text(json.dumps({"groups": groups, "sent": TIME}))
    proposed = propose_cases(NOWHERE, read_table(path), str(tmp_path / "sample.json"), now=NOW, most=2)
    rows = [case["row"] for case in map(json.loads, proposed) if "row" in case]
    assert rows == [
        {"time": "2026-03-01T11:00:00.000Z", "id": 1, "owner": name, "rest": {"a": 2}} for name in ("ann", "bob")
    ]
    assert [json.loads(case).get("quarantined") for case in proposed] == [None, "not_object", None]
    cases_of(path).write_text("".join(f"{case}\n" for case in proposed))
    assert run_cases(path).failures == ()
    cases_of(path).write_text('{"line": {"id": 1}, "outer": 7, "row": {}}\n')
    assert run_cases(path).failures == (
        f"{cases_of(path)}:1: outer: must be an object, the document around the record",
    )


TOPIC = """\
schema: log
table: events
streams: [{name: events, topic: app.events}]
columns:
  - {name: time, type: timestamp, source: "@timestamp"}
  - {name: id, type: bigint}
  - {name: place, type: bigint, source: "@offset"}
  - {name: owner, type: string, source: [owner, "@key"]}
  - {name: headers, type: json, source: "@headers"}
  - {name: rest, type: json, source: "*"}
"""


def test_cases_of_a_topic_have_the_facts_about_the_message(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(TOPIC)
    at = int(NOW.timestamp() * 1000)
    messages = [
        AMessage(70, b'{"id":1,"a":2}', b"ann", [("trace", b"t")], milliseconds=at),
        AMessage(71, b'{"id":2,"owner":"bob"}', milliseconds=at),
        AMessage(72, b"[1]", milliseconds=at),
    ]
    (tmp_path / "sample.parquet").write_bytes(a_spool_object(*messages))
    proposed = propose_cases(NOWHERE, read_table(path), str(tmp_path / "sample.parquet"), now=NOW, most=2)
    first, second, third = map(json.loads, proposed)
    assert first["message"] == {
        "@headers": {"trace": "t"}, "@key": "ann", "@offset": 70, "@timestamp": "2026-03-01T12:00:00.000Z",
    }  # fmt: skip
    assert first["row"] == {
        "time": "2026-03-01T12:00:00.000Z", "id": 1, "place": 70, "owner": "ann", "headers": {"trace": "t"},
        "rest": {"a": 2},
    }  # fmt: skip
    assert (second["row"]["owner"], third["quarantined"]) == ("bob", "not_object")
    cases_of(path).write_text("".join(f"{case}\n" for case in proposed))
    assert run_cases(path).failures == ()


def test_facts_of_a_case_are_known_ones_of_a_topic(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(TOPIC)
    cases_of(path).write_text(
        '{"line": {}, "message": 7, "row": {}}\n{"line": {}, "message": {"@offsets": 7}, "row": {}}\n'
    )
    assert run_cases(path).failures == (
        f'{cases_of(path)}:1: message: must be an object with facts, such as {{"@key": "a", "@offset": 7}}',
        f"{cases_of(path)}:2: message: @offsets is no fact; did you mean @offset? (there are @topic, @partition, "
        "@offset, @timestamp, @key, @headers, @schema_id, @header.…)",
    )
    assert failures(tmp_path, f'{{"line": {{"time": "{TIME}"}}, "message": {{}}, "row": {{}}}}') == [
        "1: message: only messages of a topic have facts, and the first stream reads none"
    ]


def test_proposed_cases_have_a_line_of_another_table(tmp_path: Path) -> None:
    path = routed(a_file(tmp_path), "{by: name, in: [a]}")
    sample = tmp_path / "sample.jsonl"
    sample.write_bytes(as_lines([{"time": TIME, "name": name, "status": 200} for name in "abab"]))
    proposed = propose_cases(NOWHERE, read_table(path), str(sample), now=NOW, most=1)
    assert [next(fate for fate in ("row", "elsewhere") if fate in json.loads(case)) for case in proposed] == [
        "row",
        "elsewhere",
    ]
    (tmp_path / "events.test.jsonl").write_text("".join(f"{case}\n" for case in proposed))
    assert run_cases(path).failures == ()


def test_in_cases_a_secret_is_its_own_name_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_SECRET_MAIL", "the true one")
    digest = hmac.digest(b"mail", b"ann", hashlib.sha256).hex()
    assert failures(tmp_path, f'{{"line": {{"time": "{TIME}", "name": "ann"}}, "row": {{"who": "{digest}"}}}}') == []


def test_no_sensitive_value_stands_in_what_is_said(tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        f'{{"line": {{"time": "{TIME}", "name": "canary"}}, "row": {{"name": "other canary"}}}}',
        columns=("{name: status, type: smallint}", "{name: name, type: string, sensitive: true}"),
    )
    assert run_cases(path).failures == (f"{cases_of(path)}:1: name: expected (sensitive), got (sensitive)",)
    with pytest.raises(WrongUse, match="name is sensitive"):
        propose_cases(NOWHERE, read_table(path), str(path), now=NOW, most=1)


def test_files_are_named_by_themselves_or_by_their_cases_or_found(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    (tmp_path / "other.yaml").write_text(a_table("log.other"))
    assert find_files([path], tmp_path) == find_files([cases_of(path)], tmp_path) == find_files([], tmp_path) == [path]
    with pytest.raises(WrongUse, match=r"other\.yaml: there are no cases; write them to .*other\.test\.jsonl"):
        find_files([tmp_path / "other.yaml"], tmp_path)


VALUES = {
    "id": st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=3),
    "status": st.integers(0, 600) | st.none() | st.text(max_size=3),
    "amount": st.decimals(-99999, 99999, places=3).map(float),
    "day": st.dates().map(str),
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "ok": st.booleans(),
    "name": st.text(max_size=30),
    "more": st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    ),
}  # fmt: skip
ANY_LINE = st.fixed_dictionaries(
    {}, optional={"time": st.sampled_from([TIME, "2020-01-01T00:00:00Z", "never", None]), **VALUES}
)


@settings(max_examples=30, deadline=None)
@given(found=st.lists(ANY_LINE.map(json.dumps) | st.text('{}[]1 "', min_size=1), min_size=1, max_size=20))
def test_cases_that_a_trial_proposes_hold(tmp_path_factory: pytest.TempPathFactory, found: list[str]) -> None:
    """For values of every type, in lines of every kind."""
    root = tmp_path_factory.mktemp("cases")
    path = a_file(root)
    sample = root / "sample"
    sample.write_bytes(as_lines([]) + "".join(f"{line}\n" for line in found).encode())
    proposed = propose_cases(NOWHERE, read_table(path), str(sample), now=NOW + timedelta(days=1), most=20)
    cases_of(path).write_text("".join(f"{line}\n" for line in proposed))
    assert run_cases(path).failures == ()
    assert run_cases(path).cases == len(proposed)


def test_proposed_cases_of_nested_columns_pass(tmp_path: Path) -> None:
    nested = (
        "{name: v, type: struct, fields: [{name: b, source: keyB, type: json}, {name: at, type: timestamp}]}",
        '{name: m, type: "map<string, list<decimal(9,2)>>"}',
    )
    path = a_file(tmp_path, more="", columns=nested)
    sample = tmp_path / "sample"
    values = '{"keyB": {"x": 1.10}, "at": 1772366400}', '{"k": [1.5, null], "j": null}', "{}"
    lines = [f'{{"time": "{TIME}", "v": {values[0]}, "m": {value}}}\n' for value in values[1:]]
    sample.write_text("".join([*lines, f'{{"time": "{TIME}"}}\n']))
    proposed = propose_cases(NOWHERE, read_table(path), str(sample), now=NOW, most=20)
    assert (
        '"v": {"keyB": {"x":1.10}, "at": "2026-03-01T12:00:00.000Z"}, "m": {"k": ["1.50", null], "j": null}'
        in proposed[0]
    )
    cases_of(path).write_text("".join(f"{line}\n" for line in proposed))
    assert (run_cases(path).failures, run_cases(path).cases) == ((), 3)
