"""Sources, values, keep and reject in the convert kernel, read both ways."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import Rejection
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_line, a_table, an_object

CANARY = "canary-7f3a@example.org"


def a_program(*columns: Any, unstored: tuple[Any, ...] = (), **more: Any) -> TableDefinition:
    """Returns a table with computed columns in the given order, unstored ones first."""
    computed = tuple(column.name for column in (*unstored, *columns) if column.value is not None)
    return a_table(*columns, unstored=unstored, computed=computed, **more)


def a_source(*texts: str, type: str = "json", name: str = "v", column_id: int = 2, **more: Any) -> Any:
    return a_column(name, type, column_id, sources=texts, **more)


SOURCES = {
    "a path": (("$.user.id",), '"user":{"id":1.10,"x":[{"id":2}]}', "1.10"),
    "a path into an array": (("$.a[1].b",), '"a":[1, {"b" : 1E2} ,3]', "1E2"),
    "a quoted step": (('$.a["b.c"]',), '"a":{"b.c":"x"}', '"x"'),
    "a path that ends early": (("$.a.b.c",), '"a":{"b":7}', None),
    "a place beyond the end": (("$.a[9]",), '"a":[1]', None),
    "the first key that is not null": (("a", "b", "c"), '"a":null,"c":3,"b":2', "2"),
    "a path after a key": (("a", "$.b.c"), '"b":{"c":[1, 2]}', "[1,2]"),
    "the rest": (("*",), '"x" : 1.10,"user":{"b":"\\u00e9"},"y":null', '{"x":1.10,"user":{"b":"\\u00e9"},"y":null}'),
    "no rest": (("*",), '"n":1', None),
    "a pattern": (("/^utm_/",), '"utm_a":1,"xutm_":2,"utm_b":"q"', '{"utm_a":1,"utm_b":"q"}'),
    "an escaped key": (("/^utm_/",), '"\\u0075tm_a":1', '{"utm_a":1}'),
    "the line": (("@line",), '"n":1', "1"),
    "the object's id": (("@object_id",), '"n":1', "7"),
    "a text that is the same": (('@="é"',), '"n":1', '"é"'),
    "a number that is the same": (("@=1.10",), '"n":1', "1.10"),
    "nothing": (("@=null",), '"v":1', None),
    "the same where keys are null": (("a", '@="x"'), '"a":null', '"x"'),
    "the stream": (("@stream",), '"n":1', '"pv_log"'),
    "the object": (("@object",), '"n":1', '"s3://staging/in/7.json"'),
    "the arrival": (("@received",), '"n":1', '"2018-10-25T03:00:00.000+00:00"'),
    "a fact where keys are null": (("a", "@line"), '"a":null', "1"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_form_of_source_keeps_the_text_of_its_value(lake: Lake, name: str) -> None:
    texts, body, value = SOURCES[name]
    table = a_table(a_source(*texts), a_column("n", "bigint", 3))
    outcome = lake.both(an_object(f'{{"time":"{TIME}",{body}}}'), table)
    assert [row["v"] for row in outcome.rows] == [value]


def test_a_key_that_is_twice_where_a_path_goes_sets_the_line_aside(lake: Lake) -> None:
    lines = [f'{{"time":"{TIME}","user":{{"id":1,"id":2}}}}', f'{{"time":"{TIME}","user":{{"x":1,"x":2}}}}']
    outcome = lake.both(an_object(*lines), a_table(a_source("$.user.id")))
    assert outcome.reasons == {"duplicate_key": 1}
    assert outcome.quarantined[0]["column"] == "v"


def test_the_time_may_come_from_the_first_of_several_keys_or_from_the_arrival(lake: Lake) -> None:
    time = a_column("time", "timestamp", 1, sources=("event_time", "ts", "@received"), required=True)
    table = a_table(a_column("n", "bigint", 2), columns=(time, a_column("n", "bigint", 2)))
    lines = [f'{{"n":1,"ts":"{TIME}"}}', f'{{"n":2,"event_time":"{TIME}","ts":"x"}}', '{"n":3}', '{"n":4,"ts":"bad"}']
    outcome = lake.both(an_object(*lines), table)
    assert [row["n"] for row in outcome.rows] == [1, 2, 3]
    assert outcome.reasons == {"bad_time": 1}


def test_rows_are_computed_kept_and_rejected_in_this_order(lake: Lake) -> None:
    table = a_program(
        a_column("n", "bigint", 2),
        a_column("double", "integer", 3, value="n * 2"),
        a_column("text", "string", 4, value="'n' || half"),
        unstored=(a_column("half", "bigint", 0, value="n // 2"),),
        keep="n < 100",
        reject=(Rejection(when="n < 0", reason="negative"), Rejection(when="double = 14", reason="seven")),
    )
    outcome = lake.both(an_object(*({"n": n} for n in (4, 100, -1, 7, 200)), {"n": None}), table)
    assert [(row["n"], row["double"], row["text"]) for row in outcome.rows] == [(4, 8, "n2")]
    assert outcome.reasons == {"negative": 1, "seven": 1}
    assert (outcome.result.lines_in, outcome.result.lines_filtered) == (6, 3)


def test_an_expression_that_fails_gives_null_and_is_counted_and_in_conditions_it_sets_aside(lake: Lake) -> None:
    table = a_program(
        a_column("s", "string", 2),
        a_column("n", "integer", 3, value="CAST(s AS INTEGER)"),
        keep="CAST(s AS DOUBLE) IS NOT NULL OR s IS NULL",
        reject=(Rejection(when="CAST(s AS INTEGER) > 5", reason="many"),),
    )
    outcome = lake.both(an_object({"s": "1"}, {"s": "x"}, {"s": "1e30"}, {"s": None}, {"s": "9"}), table)
    assert [row["n"] for row in outcome.rows] == [1, None]
    assert outcome.reasons == {"keep_failed": 1, "reject_failed": 1, "many": 1}
    alone = a_program(a_column("s", "string", 2), a_column("n", "integer", 3, value="CAST(s AS INTEGER)"))
    counted = lake.both(an_object({"s": "1"}, {"s": "x"}, {"s": "y"}), alone)
    assert counted.value_errors == {("n", "value_error"): 2}


def test_results_are_typed_as_values_of_lines_are(lake: Lake) -> None:
    table = a_program(
        a_column("s", "string", 2),
        a_column("short", "string", 3, value="s || 'é'", length=3),
        a_column("small", "smallint", 4, value="70000"),
        a_column("exact", "decimal", 5, precision=5, scale=2, value="'12.345'"),
        a_column("at", "timestamp", 6, value="make_timestamp(1540339223123456)"),
        a_column("unix", "timestamp", 7, value="1540339223"),
        a_column("day", "date", 8, value="time", length=None),
        a_column("nested", "json", 9, value="{a: [1, 2], b: s}"),
        a_column("raw", "json", 10, value="'{\"a\": 1.10}'"),
        a_column("no_json", "json", 11, value="'{'"),
        a_column("nothing", "double", 12, value="CAST('nan' AS DOUBLE)"),
    )
    outcome = lake.both(an_object({"s": "ab"}), table)
    (row,) = outcome.rows
    assert (row["short"], row["small"], str(row["exact"])) == ("ab", None, "12.34")
    assert (row["at"], row["unix"], str(row["day"])) == (1540339223123, 1540339223000, "2018-10-24")
    assert (row["nested"], row["raw"]) == ('{"a":[1,2],"b":"ab"}', '{"a":1.10}')
    assert outcome.value_errors == {
        ("short", "cut"): 1,
        ("small", "out_of_range"): 1,
        ("no_json", "unfit"): 1,
        ("nothing", "not_finite"): 1,
    }


@pytest.mark.parametrize("value", ["CAST(x AS FLOAT)", "single"])
def test_a_number_of_single_precision_is_written_as_it_is_meant(lake: Lake, value: str) -> None:
    """As a double, its digits would have noise, and 0.29 would become 0.28."""
    table = a_program(
        a_column("x", "double", 2),
        a_column("single", "real", 3, source="x"),
        a_column("exact", "decimal", 4, precision=12, scale=2, value=value),
        a_column("text", "string", 5, value=value),
        a_column("json", "json", 6, value=value),
        a_column("whole", "bigint", 7, value=value),
        a_column("wide", "double", 8, value=value),
    )
    outcome = lake.both(an_object({"x": 0.29}, {"x": -1.1}, {"x": 134217728}), table)
    assert [str(row["exact"]) for row in outcome.rows] == ["0.29", "-1.10", "134217728.00"]
    assert [row["text"] for row in outcome.rows] == ["0.29", "-1.1", "134217728.0"]
    assert [row["json"] for row in outcome.rows] == ["0.29", "-1.1", "134217728.0"]
    assert [row["whole"] for row in outcome.rows] == [0, -1, 134217728]
    assert [row["wide"] for row in outcome.rows] == [row["single"] for row in outcome.rows]


def test_numbers_of_single_precision_in_nested_values_are_written_as_they_are_meant(lake: Lake) -> None:
    table = a_program(
        a_column("x", "double", 2),
        a_column("nested", "json", 3, value="{'FLOAT': CAST(x AS FLOAT), 'of': [CAST(x AS FLOAT), NULL], 'wide': x}"),
        a_column("map", "json", 4, value="MAP {'FLOAT ''x': CAST(x AS FLOAT)}"),
    )
    (row,) = lake.both(an_object({"x": 0.29}), table).rows
    assert row["nested"] == '{"FLOAT":0.29,"of":[0.29,null],"wide":0.29}'
    assert row["map"] == '{"FLOAT \'x":0.29}'


def test_single_precision_that_is_no_number_is_null_and_counted(lake: Lake) -> None:
    table = a_program(
        a_column("exact", "decimal", 2, precision=9, scale=2, value="CAST('nan' AS FLOAT)"),
        a_column("text", "string", 3, value="CAST('-inf' AS FLOAT)"),
    )
    outcome = lake.both(an_object({}), table)
    assert (outcome.rows[0]["exact"], outcome.rows[0]["text"]) == (None, None)
    assert outcome.value_errors == {("exact", "not_finite"): 1, ("text", "not_finite"): 1}


def test_the_partition_column_may_be_computed(lake: Lake) -> None:
    time = a_column("time", "timestamp", 1, required=True, value="make_timestamp(stamp * 1000000)")
    table = a_table(columns=(time,), unstored=(a_column("stamp", "bigint", 0),), computed=("time",))
    outcome = lake.both(an_object('{"stamp":1540339223}', '{"x":1}', '{"stamp":9223372036854775807}'), table)
    assert [row["time"] for row in outcome.rows] == [1540339223000]
    assert outcome.reasons == {"missing_time": 1, "bad_time": 1}


def test_a_pseudonym_is_an_hmac_under_the_secret_of_the_worker(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_program(
        a_column("who", "string", 2, value="pseudonym(lower(trim(email)), 'mail')"),
        unstored=(a_column("email", "string", 0),),
    )
    for key in ("k" * 70, "another", "k" * 70):  # as for the converted object
        monkeypatch.setenv("PRISM_SECRET_MAIL", key)
        outcome = lake.both(an_object({"email": " Ann@X "}, {"email": None}), table)
        wanted = hmac.new(key.encode(), b"ann@x", hashlib.sha256).hexdigest()
        assert [row["who"] for row in outcome.rows] == [wanted, None]


@pytest.mark.parametrize(
    "value",
    [
        "CAST(s AS INTEGER) + CAST(s AS INTEGER)",
        "CASE WHEN s = '1' THEN 2 ELSE CAST('x' AS INTEGER) END",
        "1 % len(s) + 1",
    ],
)
def test_what_expressions_share_and_constants_that_fail_fail_in_their_own_rows_only(lake: Lake, value: str) -> None:
    table = a_program(
        a_column("s", "string", 2),
        a_column("a", "integer", 3, value=value),
        a_column("b", "integer", 4, value="CAST(s AS INTEGER) + 1"),
    )
    rows = lake.both(an_object({"s": "1"}, {"s": "x"}), table).rows
    assert [row["b"] for row in rows] == [2, None]
    assert rows[0]["a"] is not None


MACROS = {
    "mask('secret', 2)": "****et",
    "mask('ab', 2)": "**",
    "mask('ab', 0)": "**",
    "url_host('https://ann:pw@Example.ORG:8443/a?b=c@d')": "example.org",
    "url_host('//cdn.example.org/x')": "cdn.example.org",
    "url_host('http://[2001:db8::1]:80/')": "[2001:db8::1]",
    "url_host('nothing')": None,
    "url_param('http://x/?a=1&q=a+b%21&a=2#q=no', 'q')": "a b!",
    "url_param('http://x/?a=1&a=2', 'a')": "1",
    "url_param('http://x/?aq=1', 'q')": None,
    "ip_net('203.0.113.77', 24)": "203.0.113.0/24",
    "ip_net('203.0.113.77', 0)": "0.0.0.0/0",
    "ip_net('203.0.113.77', 32)": "203.0.113.77/32",
    "ip_net('2001:db8::1', 24)": None,
    "unix_ms(make_timestamp(1540339223123956))": "1540339223123",
    "at_offset(time, '+09:00')": "2018-10-24 09:00:23",
    "at_offset(time, '-03:30')": "2018-10-23 20:30:23",
}


def test_each_macro_is_one_line_of_sql_that_does_what_it_says(lake: Lake) -> None:
    columns = [a_column(f"m{number}", "string", number, value=text) for number, text in enumerate(MACROS, 2)]
    (row,) = lake.both(an_object({}), a_program(*columns)).rows
    assert {text: row[f"m{number}"] for number, text in enumerate(MACROS, 2)} == MACROS


FLOORED = {
    "make_timestamp(1795478399999999)": 1795478399999,
    "make_timestamp(-1)": -1,
    "make_timestamp_ns(1795478399999999999)": 1795478399999,
    "make_timestamp_ns(-1)": -1,
    "make_timestamp_ns(-1000000)": -1,
    "make_timestamp_ns(9223372036854775806)": 9223372036854,
    "make_timestamp_ns(-9223372036854775807 - 1)": -9223372036855,
    "CAST('2026-11-23T23:59:59.9999' AS TIMESTAMP)": 1795478399999,
}
"""Milliseconds of times, including the last one before a day and the ends of the range of nanoseconds."""


@pytest.mark.parametrize(("value", "expected"), FLOORED.items())
def test_computed_times_are_rounded_down_as_those_of_lines_are(lake: Lake, value: str, expected: int) -> None:
    table = a_program(
        a_column("at", "timestamp", 2, value=value),
        a_column("counted", "bigint", 3, value=f"unix_ms({value})"),
        a_column("local", "timestamp", 4, value=f"at_offset({value}, '-09:00')"),
    )
    (row,) = lake.both(an_object({}), table).rows
    assert (row["at"], row["counted"], row["local"]) == (expected, expected, expected - 9 * 3_600_000)


@pytest.mark.parametrize(
    "value", ["'2018-10-24 09:00:23.5'", "DATE '0001-01-02'", "CAST('infinity' AS TIMESTAMP)", "NULL"]
)
def test_times_of_any_kind_are_counted_and_moved_as_duckdb_reads_them(lake: Lake, value: str) -> None:
    read = f"CAST({value} AS TIMESTAMP)"
    table = a_program(
        a_column("counted", "bigint", 2, value=f"unix_ms({value})"),
        a_column("local", "string", 3, value=f"at_offset({value}, '+00:30')"),
        a_column("counted_by_duckdb", "bigint", 4, value=f"epoch_ms({read})"),
        a_column("moved_by_duckdb", "string", 5, value=f"{read} + INTERVAL 30 MINUTE"),
    )
    (row,) = lake.both(an_object({}), table).rows
    assert (row["counted"], row["local"]) == (row["counted_by_duckdb"], row["moved_by_duckdb"])


def test_an_expression_that_takes_too_long_is_an_error_of_that_object(lake: Lake) -> None:
    many = "string_split(repeat('ab,ab,ab,ab,', 250), ',')"
    slow = f"len(list_distinct(flatten(list_transform({many}, lambda x: [x || n, x]))))"
    table = a_program(a_column("n", "bigint", 2), a_column("v", "bigint", 3, value=slow))
    failure = lake.convert(
        an_object(*({"n": n} for n in range(6_000))), table, limits=Limits(expression_seconds=0.05)
    ).result.failure
    assert failure is not None
    assert (failure.transient, failure.at_source) == (False, False)
    assert "took longer than 0.05 s" in failure.message


SENSITIVE = a_program(
    a_column("n", "bigint", 2),
    a_column("hash", "string", 3, value="sha256(email)"),
    unstored=(a_column("email", "string", 0, sensitive=True, sources=("email", "$.user.email")),),
    reject=(Rejection(when="n < 0", reason="negative"),),
)


def test_values_of_sensitive_columns_reach_neither_quarantine_nor_errors(lake: Lake) -> None:
    lines = [
        a_line({"n": -1, "email": CANARY, "seen": "yes"}),
        a_line({"n": -1, "user": {"email": CANARY}}),
        f'{{"time":"bad","n":1,"\\u0065mail":"{CANARY}"}}'.encode(),
        f'{{"time":"{TIME}","email":"{CANARY}","email":"{CANARY}"}}'.encode(),
        f'{{"n":1,"email":"{CANARY}"'.encode(),
        f'["{CANARY}"]'.encode(),
        b'{"email":"' + CANARY.encode() + b'\xff"}',
        a_line({"n": 1, "email": CANARY}),
    ]
    outcome = lake.both(an_object(*lines), SENSITIVE)
    assert (len(outcome.rows), len(outcome.quarantined)) == (1, 7)
    assert CANARY not in json.dumps(outcome.quarantined) + repr(outcome.result) + repr(outcome.rows)
    assert json.loads(outcome.quarantined[0]["text"]) == {"time": TIME, "n": -1, "email": None, "seen": "yes"}
    start = len(an_object(*lines[:4]))
    assert outcome.quarantined[4] == {
        "line": 5,
        "reason": "bad_json",
        "column": None,
        "object": "s3://staging/in/7.json",
        "offset": start,
        "length": len(lines[4]),
    }


def test_of_an_unsound_object_only_places_of_lines_are_kept(lake: Lake) -> None:
    import gzip

    body = gzip.compress(an_object({"n": 1, "email": CANARY}, {"n": 2, "email": CANARY}))[:-9]
    outcome = lake.both(body, SENSITIVE)
    assert (len(outcome.rows), outcome.reasons) == (0, {"truncated": 2})
    assert all("text" not in record and "base64" not in record for record in outcome.quarantined)


def test_a_table_without_expressions_loads_neither_duckdb_nor_yaml() -> None:
    code = (
        "import pathlib, sys, tempfile; from prism_assets_tests.kernels.builders import *; "
        "t = a_table(a_column('n', 'bigint', 2), a_column('v', 'json', 3, sources=('$.a.b',))); "
        "o = Lake(pathlib.Path(tempfile.mkdtemp())).convert(an_object({'n': 1}), t); "
        "assert len(o.rows) == 1 and not {'duckdb', 'yaml'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


HOSTILE = {
    "replace(t, 'x', t)": 60_000,
    "CAST(length(list_reduce(string_split(t, ''), lambda made, x: bin(made))) AS VARCHAR)": 60,
    "CAST(length(list_transform([repeat(t, 256)], lambda x: repeat(x, 128))[1]) AS VARCHAR)": 65_000,
}
"""Expressions that need gigabytes, with the length of their text."""


def test_one_hostile_line_fails_alone_and_kills_no_worker(tmp_path: Path) -> None:
    """In a separate process, which reports its peak memory in MB."""
    code = f"""
import resource, sys
from pathlib import Path
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object
from prism_assets_tests.peak_memory import peak_kilobytes
lake = Lake(Path(sys.argv[1]))
for value, length in {HOSTILE!r}.items():
    columns = a_column("t", "string", 2, length=65_535), a_column("v", "string", 3, value=value)
    outcome = lake.convert(
        an_object(*({{"t": text}} for text in ("x", "x", "x" * length, "x"))), a_table(*columns, computed=("v",))
    )
    assert [row["v"] is None for row in outcome.rows] == [False, False, True, False], (value, outcome.result)
    assert outcome.value_errors == {{("v", "value_error"): 1}}, outcome.value_errors
column = a_column("v", "string", 3, value="CAST(length(replace(t, 'x', t)) AS VARCHAR)")
long = a_table(columns[0], column, computed=("v",))
assert [row["v"] for row in lake.convert(an_object({{"t": "x" * 14_000}}), long).rows] == ["196000000"]
assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
print(peak_kilobytes() // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 3_000


def test_a_condition_over_a_hostile_line_sets_it_aside(lake: Lake) -> None:
    grown = "length(list_reduce(string_split(t, ''), lambda made, x: bin(made)))"
    table = a_program(
        a_column("t", "string", 2), keep=f"{grown} > 0", reject=(Rejection(when="t = 'no'", reason="no"),)
    )
    outcome = lake.both(an_object({"t": "x"}, {"t": "x" * 60}, {"t": "no"}, {"t": "xx"}), table)
    assert [row["t"] for row in outcome.rows] == ["x", "xx"]
    assert outcome.reasons == {"keep_failed": 1, "no": 1}


def test_results_hang_on_no_clock_of_the_machine() -> None:
    """By default DuckDB uses the worker's zone for times with a zone."""
    query = (
        "SELECT CAST(strptime('22/Nov/2026:23:30:00 +0000', '%d/%b/%Y:%H:%M:%S %z') AS TIMESTAMP), "
        """CAST(json_transform('{"t": "2026-11-22 23:30:00+00"}', '{"t": "TIMESTAMPTZ"}').t AS TIMESTAMP)"""
    )
    code = (
        f"from prism_assets.kernels.expressions.session import connect; print(connect().execute({query!r}).fetchall())"
    )
    told = {
        zone: subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**os.environ, "TZ": zone}
        ).stdout
        for zone in ("UTC", "Asia/Tokyo")
    }
    assert told["UTC"] == told["Asia/Tokyo"]
    assert "2026, 11, 22, 23, 30" in told["UTC"]
