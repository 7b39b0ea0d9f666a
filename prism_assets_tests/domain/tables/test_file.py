"""Table files: the content of a good one, and the message for each mistake."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from prism_assets.domain.columns.types import MICROSECONDS
from prism_assets.domain.days.limits import CheckLimits, Freshness
from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.domain.names import NAME_RULE, RESERVED_SCHEMAS, TableName
from prism_assets.domain.tables.changes import ChangeSetting, describe
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.tables.options import Contract, IcebergOptions, MergePolicy

PATH = "tables/log/pv_log.yaml"
GOOD = """\
schema: log
table: pv_log
description: Page views
owner: team:web
streams:
  - {name: pv_log, url: "s3://prism-staging/pv_log/"}
  - {name: old, url: "s3://prism-staging/old/", enabled: false, discard: true}
partition: {column: time, timezone: Asia/Tokyo}
columns:
  - {name: time, type: timestamp, source: event_time, source_offset: "+09:00"}
  - {name: user_id, type: bigint}
  - {name: path, type: string, length: 2000}
  - {name: price, type: "decimal(12, 4)"}
  - {name: seen, type: timestamp, time_unit: milliseconds}
  - {name: payload, type: json}
merge: {interval: 600, target_bytes: 1000, max_objects: 20, sort_by: [time, user_id]}
accept: {past_days: 30, future_days: 1, from: arrival}
retention_days: null
freshness: {warn: 30m, fail: 2h}
checks: {quarantine_rate: 0.05, unmerged_hours: 12, closing_hours: 3}
iceberg: {commit_seconds: 30, keep_hours: 12, daily_tags: 7, metrics: [time, path], on_foreign: stop}
"""


def problems(text: str) -> list[str]:
    """Returns all problems of a file, without its path."""
    with pytest.raises(DefinitionError) as raised:
        parse_table_file(text, PATH)
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{PATH}:") for line in lines)
    return [line.removeprefix(f"{PATH}:") for line in lines]


def changed(old: str, new: str) -> list[str]:
    """The problems of the good file with one thing changed."""
    assert GOOD.count(old) == 1
    return problems(GOOD.replace(old, new))


@pytest.mark.parametrize("schema", RESERVED_SCHEMAS)
def test_a_schema_that_readers_have_themselves_is_refused_with_its_line(schema: str) -> None:
    (problem,) = changed("schema: log\n", f"schema: {schema}\n")
    assert re.match(rf"\d+: schema: {schema} is taken: ", problem)
    assert problem.endswith("; choose another name")


@pytest.mark.parametrize("schema", ["temp", "system", "main", "memory", "lake"])
def test_a_schema_may_be_called_like_a_database_of_duckdb(schema: str) -> None:
    assert parse_table_file(GOOD.replace("schema: log\n", f"schema: {schema}\n"), PATH).name.schema == schema


def test_a_good_file_says_all_of_it() -> None:
    table = parse_table_file(GOOD, PATH)
    assert table.name == TableName("log", "pv_log")
    assert [column.name for column in table.columns] == ["time", "user_id", "path", "price", "seen", "payload"]
    assert [stream.url for stream in table.streams] == ["s3://prism-staging/pv_log/", "s3://prism-staging/old/"]
    assert [(stream.enabled, stream.discard) for stream in table.streams] == [(True, False), (False, True)]
    assert table.merge == MergePolicy(interval=600, target_bytes=1000, max_objects=20, sort_by=("time", "user_id"))
    assert (table.past_days, table.future_days, table.accept_from, table.retention_days) == (30, 1, "arrival", None)
    assert table.freshness == Freshness(warn=timedelta(minutes=30), fail=timedelta(hours=2))
    assert table.limits == CheckLimits(quarantine_rate=0.05, unmerged_hours=12, closing_hours=3)
    assert table.iceberg == IcebergOptions(
        commit_seconds=30, keep_hours=12, daily_tags=7, metrics=("time", "path"), on_foreign="stop"
    )
    assert table.column("time").source == "event_time"
    assert table.column("user_id").source == "user_id"
    assert (table.column("price").precision, table.column("price").scale) == (12, 4)


def test_a_good_file_survives_the_way_through_the_database() -> None:
    table = parse_table_file(GOOD, PATH)
    assert TableDefinition.from_json(table.to_json()) == table
    assert TableDefinition.from_json(table.to_json()).to_json() == table.to_json()


def test_a_definition_that_was_stored_before_the_window_could_be_chosen_counts_from_arrival() -> None:
    """Objects claimed under such a definition are converted as before."""
    stored = json.loads(parse_table_file(GOOD.replace("from: arrival", "from: object"), PATH).to_json())
    assert TableDefinition.from_document(stored).accept_from == "object"
    del stored["accept_from"]
    assert TableDefinition.from_document(stored).accept_from == "arrival"


def test_a_zone_offset_of_null_is_none() -> None:
    text = GOOD.replace("time_unit: milliseconds", "zone_offset: null")
    assert parse_table_file(text, PATH).column("seen").zone_offset is None


def test_stored_definitions_with_fields_that_files_may_not_have_any_more_stay_readable() -> None:
    stored = json.loads(parse_table_file(GOOD, PATH).to_json())
    stored["retention_days"] = 400
    stored["columns"][4]["zone_offset"] = "-05:00"
    table = TableDefinition.from_document(stored)
    assert (table.retention_days, table.column("seen").zone_offset) == (400, "-05:00")
    assert TableDefinition.from_json(table.to_json()) == table


def test_freshness_and_limits_are_not_stored() -> None:
    table = parse_table_file(GOOD, PATH)
    stored = TableDefinition.from_json(table.to_json())
    assert stored == table
    assert (stored.freshness, stored.limits) == (None, CheckLimits())
    assert "freshness" not in table.to_json()


def test_the_path_of_the_file_is_no_part_of_the_definition() -> None:
    assert parse_table_file(GOOD, "here.yaml") == parse_table_file(GOOD, "there.yaml")


def test_what_is_left_out_has_its_default() -> None:
    text = (
        "schema: log\ntable: t\nstreams: [{name: t, url: 's3://abc/t/'}]\n"
        "columns: [{name: time, type: timestamp}, {name: note, type: string}]\n"
    )
    table = parse_table_file(text, PATH)
    assert (table.partition_column, table.timezone, table.owner) == ("time", "UTC", None)
    assert table.merge == MergePolicy(sort_by=("time",))
    assert (table.past_days, table.future_days, table.accept_from, table.retention_days) == (21, 3, "object", None)
    assert table.column("note").length == 65_535
    assert (table.freshness, table.limits) == (None, CheckLimits())


ICEBERG = GOOD.splitlines()[-1]


@pytest.mark.parametrize("said", ["iceberg: true", "iceberg: {}", "iceberg: {metrics: null}"])
def test_a_table_may_be_iceberg_with_the_defaults(said: str) -> None:
    table = parse_table_file(GOOD.replace(ICEBERG, said), PATH)
    assert table.iceberg == IcebergOptions()
    assert table.file_format == MICROSECONDS


@pytest.mark.parametrize("said", ["iceberg: false", "iceberg: null", "iceberg:", ""])
def test_a_table_is_not_iceberg_unless_it_says_so(said: str) -> None:
    table = parse_table_file(GOOD.replace(ICEBERG, said), PATH)
    assert table.iceberg is None
    assert "iceberg" not in table.to_json()


@pytest.mark.parametrize("said", ["true", "{keep_hours: 1}"])
def test_milliseconds_are_refused_to_iceberg_with_the_reason(said: str) -> None:
    found = problems(GOOD.replace(ICEBERG, f"timestamps: milliseconds\niceberg: {said}"))
    assert found == [
        "22: iceberg: needs timestamps in microseconds: Iceberg on Spark compares statistics in milliseconds with "
        "literals in microseconds, and returns wrong rows; remove timestamps: milliseconds, or iceberg"
    ]


def test_milliseconds_are_fine_where_iceberg_is_off() -> None:
    text = GOOD.replace(ICEBERG, "timestamps: milliseconds\niceberg: false")
    assert parse_table_file(text, PATH).iceberg is None


def test_a_column_may_be_described_in_one_line() -> None:
    table = parse_table_file(GOOD.replace("bigint", "bigint, description: 'who it was: 0 for guests'"), PATH)
    assert (table.column("user_id").description, table.column("path").description) == ("who it was: 0 for guests", None)
    table = parse_table_file(GOOD.replace("bigint", "bigint, description: ユーザ\u3000ID"), PATH)
    assert table.column("user_id").description == "ユーザ\u3000ID"


def test_the_partition_column_is_required_without_saying_so() -> None:
    table = parse_table_file(GOOD, PATH)
    assert table.column("time").required
    assert not table.column("user_id").required


def test_a_wrong_file_is_wrong_use() -> None:
    with pytest.raises(WrongUse):
        parse_table_file("[]", PATH)


MISTAKES = {
    "unknown freshness field": ("{warn: 30m", "{late: 30m", "19: freshness.late: is not a known field"),
    "no unit": ("warn: 30m", "warn: 30", "19: freshness.warn: must be a number with a unit, such as 90s, 30m"),
    "unknown unit": ("warn: 30m", "warn: 30w", "19: freshness.warn: must be a number with a unit"),
    "too fresh": ("warn: 30m", "warn: 59s", "19: freshness.warn: must be 1m or more"),
    "warned too late": ("warn: 30m", "warn: 2h", "19: freshness.warn: must be shorter than fail"),
    "never failing": (", fail: 2h", "", "19: freshness.fail: is missing"),
    "freshness as text": ("{warn: 30m, fail: 2h}", "2h", "19: freshness: must be a mapping"),
    "unknown limit": ("unmerged_hours", "merged_hours", "20: checks.merged_hours: is not a known field"),
    "limit as text": ("unmerged_hours: 12", "unmerged_hours: long", "20: checks.unmerged_hours: must be a number"),
    "limit as flag": ("closing_hours: 3", "closing_hours: yes", "20: checks.closing_hours: must be a number"),
    "rate too high": ("rate: 0.05", "rate: 5", "20: checks.quarantine_rate: must lie between 0 and 1"),
    "unknown field": ("retention_days: null", "retension_days: null", "18: retension_days: is not a known field"),
    "unknown column field": ("type: bigint", "type: bigint, size: 8", "11: columns[1].size: is not a known field"),
    "unknown stream field": ("discard: true", "discord: true", "7: streams[1].discord: is not a known field"),
    "unknown merge field": ("interval: 600", "intervall: 600", "16: merge.intervall: is not a known field"),
    "unknown partition field": ("timezone: Asia", "zone: Asia", "8: partition.zone: is not a known field"),
    "unknown accept field": ("past_days: 30", "days: 30", "17: accept.days: is not a known field"),
    "accepted from nothing known": ("from: arrival", "from: now", "17: accept.from: must be one of object, arrival"),
    "misspelt unit": (
        "type: bigint",
        "type: timestamp, time_unit: millisecond",
        "11: columns[1].time_unit: must be one of seconds, milliseconds, microseconds; did you mean milliseconds?",
    ),
    "nanoseconds": (
        "milliseconds}",
        "nanoseconds}",
        "14: columns[4].time_unit: cannot be nanoseconds: read the key as",
    ),
    "missing schema": ("schema: log\n", "", "1: schema: is missing"),
    "missing column type": ("user_id, type: bigint", "user_id", "11: columns[1].type: nothing is not a column type"),
    "missing stream url": (
        ', url: "s3://prism-staging/pv_log/"',
        "",
        "6: streams[0].url: must be s3://bucket/prefix/, or `topic` must name a topic of Kafka",
    ),
    "unknown type": ("type: bigint", "type: int", "11: columns[1].type: int is not a column type (known: string,"),
    "bare decimal": ('"decimal(12, 4)"', "decimal", "13: columns[3].type: decimal is not a column type"),
    "no decimal digits": ("(12, 4)", "(0, 0)", "13: columns[3].type: decimal(p, s) needs 1 <= p <= 38 and s <= p"),
    "too many digits": ("(12, 4)", "(39, 4)", "13: columns[3].type: decimal(p, s) needs 1 <= p <= 38 and s <= p"),
    "scale over precision": ("(12, 4)", "(4, 12)", "13: columns[3].type: decimal(p, s) needs 1 <= p <= 38 and s <= p"),
    "bad name": ("name: user_id", "name: User", f"11: columns[1].name: {NAME_RULE}"),
    "bad schema": ("schema: log", "schema: 1log", f"1: schema: {NAME_RULE}"),
    "long table": ("table: pv_log", f"table: {'t' * 65}", f"2: table: {NAME_RULE}"),
    "dt column": ("name: user_id", "name: dt", "11: columns[1].name: dt is the partition key"),
    "double column": ("name: path", "name: payload", "15: columns[5].name: payload is given twice"),
    "double stream": ("name: old", "name: pv_log", "7: streams[1].name: pv_log is given twice"),
    "double field": ("owner: team:web", "table: other", "4: table: is given twice"),
    "owner that is nobody": ("owner: team:web", "owner: web", "4: owner: web must be an e-mail address or look like"),
    "not a url": ("s3://prism-staging/old/", "https://x/old/", "7: streams[1].url: must be s3://bucket/prefix/"),
    "no folder": ("s3://prism-staging/old/", "s3://prism-staging/old", "7: streams[1].url: must end with /"),
    "bad bucket": ("s3://prism-staging/old/", "s3://Prism/old/", "7: streams[1].url: must be s3://bucket/prefix/"),
    "pattern that is a folder": (
        "discard: true",
        "exclude: [tmp/]",
        "7: streams[1].exclude: tmp/ ends with /, as no object of a folder does; write tmp/**",
    ),
    "pattern that is no text": ("discard: true", "include: [5]", "7: streams[1].include: 5 must be text"),
    "pattern without list": ("discard: true", "include: '*'", "7: streams[1].include: must be a list of glob patterns"),
    "double pattern": ("discard: true", "include: [a, a]", "7: streams[1].include: a is given twice"),
    "bad zone": ("Asia/Tokyo", "Asia/Tokio", "8: partition.timezone: Asia/Tokio is not a time zone name"),
    "zone outside": ("Asia/Tokyo", "../../etc/passwd", "8: partition.timezone: ../../etc/passwd is not a time zone"),
    "no partition column": (
        "{column: time,",
        "{column: when,",
        "8: partition.column: the partition column when is not",
    ),
    "partition by what is not stored": (
        "{name: time, ",
        "{name: time, stored: false, ",
        "8: partition.column: the partition column time must be stored",
    ),
    "partition by number": ("{column: time,", "{column: user_id,", "8: partition.column: the partition column user_id"),
    "sort by nothing known": ("[time, user_id]", "[time, who]", "16: merge.sort_by: who is not among the columns"),
    "sort elsewhere": ("[time, user_id]", "[user_id]", "16: merge.sort_by: must begin with the partition column time"),
    "sort by a list": ("[time, user_id]", "[[time]]", "16: merge.sort_by: "),
    "sort by a number": ("[time, user_id]", "[time, 5]", "16: merge.sort_by: 5 must be text: write it in quotes"),
    "sort by no list": ("[time, user_id]", "time", "16: merge.sort_by: must be a list of column names"),
    "number as text": ("interval: 600", "interval: often", "16: merge.interval: must be a whole number"),
    "flag as number": ("interval: 600", "interval: true", "16: merge.interval: must be a whole number"),
    "number as flag": ("enabled: false", "enabled: 0", "7: streams[1].enabled: must be true or false"),
    "text as number": ("description: Page views", "description: 5", "3: description: must be text"),
    "number too low": ("interval: 600", "interval: -1", "16: merge.interval: must lie between 0 and 604800"),
    "number too high": ("length: 2000", "length: 65536", "12: columns[2].length: must lie between 1 and 65535"),
    "retention": ("retention_days: null", "retention_days: 0", "18: retention_days: must lie between 1 and 36500"),
    "retention for ever": (
        "retention_days: null",
        "retention_days: never",
        "18: retention_days: must be a whole number",
    ),
    "zone offset": (
        "type: timestamp, time_unit: milliseconds",
        'type: timestamp, zone_offset: "-05:00"',
        "14: columns[4].zone_offset: it changes nothing: times are stored as instants in UTC; remove the field",
    ),
    "length of a number": ("type: bigint", "type: bigint, length: 8", "11: columns[1].length: a bigint column has no"),
    "unit of a number": (
        "type: bigint",
        "type: bigint, time_unit: seconds",
        "11: columns[1].time_unit: a bigint column has none: it says how a timestamp or a date is read",
    ),
    "offset of a text": (
        "length: 2000",
        'source_offset: "+09:00"',
        "12: columns[2].source_offset: a string column has none: it says how a timestamp or a date is read",
    ),
    "long description of a column": ("bigint", f"bigint, description: {'x' * 256}", "11: columns[1].description: must"),
    "column described in two lines": (
        "bigint",
        'bigint, description: "a\\nb"',
        "11: columns[1].description: must be one line",
    ),
    "bad offset": ('"+09:00"', '"+9"', '10: columns[0].source_offset: must look like "+09:00"'),
    "offset beyond the earth": ('"+09:00"', '"+15:00"', '10: columns[0].source_offset: must look like "+09:00"'),
    "bad unit": ("milliseconds", "minutes", "14: columns[4].time_unit: must be one of seconds, milliseconds"),
    "partition as text": ("{column: time, timezone: Asia/Tokyo}", "time", "8: partition: must be a mapping"),
    "unknown iceberg field": ("daily_tags", "weekly_tags", "21: iceberg.weekly_tags: is not a known field"),
    "iceberg as text": (ICEBERG, "iceberg: yes please", "21: iceberg: must be true, false or a mapping"),
    "iceberg as number": (ICEBERG, "iceberg: 60", "21: iceberg: must be true, false or a mapping"),
    "commits without a pause": (
        "seconds: 30",
        "seconds: 0",
        "21: iceberg.commit_seconds: must lie between 1 and 86400",
    ),
    "commits too rare": ("seconds: 30", "seconds: 86401", "21: iceberg.commit_seconds: must lie between 1 and 86400"),
    "snapshots kept for no time": ("_hours: 12, d", "_hours: 0, d", "21: iceberg.keep_hours: must lie between 1 and"),
    "snapshots kept too long": ("_hours: 12, d", "_hours: 8761, d", "21: iceberg.keep_hours: must lie between 1 and"),
    "tags below zero": ("tags: 7", "tags: -1", "21: iceberg.daily_tags: must lie between 0 and 3650"),
    "too many tags": ("tags: 7", "tags: 3651", "21: iceberg.daily_tags: must lie between 0 and 3650"),
    "seconds as text": ("seconds: 30", "seconds: 1m", "21: iceberg.commit_seconds: must be a whole number"),
    "metrics of nothing known": ("[time, path]", "[time, who]", "21: iceberg.metrics: who is not among the columns"),
    "metrics twice": ("[time, path]", "[time, time]", "21: iceberg.metrics: time is given twice"),
    "metrics of nothing": ("[time, path]", "[]", "21: iceberg.metrics: must name a column"),
    "metrics as text": ("[time, path]", "time", "21: iceberg.metrics: must be a list of column names"),
    "metrics of a list": ("[time, path]", "[[time]]", "21: iceberg.metrics: "),
    "foreign commits to be merged": ("stop}", "merge}", "21: iceberg.on_foreign: must be one of restore, stop"),
    "operators": ("owner: team:web", "operators: []", "4: operators: this version has no operators: columns say"),
    "unknown tag": ("Page views", "!secret x", "3: description: "),
    "a date that is none": ("Page views", "2026-02-30", "3: description: "),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_line_and_field(name: str) -> None:
    old, new, message = MISTAKES[name]
    found = changed(old, new)
    assert any(problem.startswith(message) for problem in found), found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "1: this is not YAML: "),
        ("b: 1\na: " + "[" * 100 + "]" * 100, "2: this is nested too deep"),
        ("a: " + "[" * 5_000, "1: this is nested too deep"),
        ("a: &a [1, *a]", "1: this is nested too deep"),
        ("a: 1\n b: 2\n", "2: this is not YAML: "),
        ("a: \x07", "1: this is not YAML: "),
        ("", "1: the file must hold one mapping"),
        ("- a\n- b\n", "1: the file must hold one mapping"),
        ("just words", "1: the file must hold one mapping"),
    ],
)
def test_what_is_no_table_file_at_all_is_told_in_one_line(text: str, message: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        parse_table_file(text, PATH)
    assert str(raised.value).startswith(f"{PATH}:{message}")


@pytest.mark.parametrize("text", ["columns: []", "columns: {}", "columns: time", "columns: [time]"])
def test_columns_must_be_a_list_of_mappings(text: str) -> None:
    head = GOOD[: GOOD.index("columns:")]
    found = problems(head + text + "\n")
    assert any(problem.startswith("9: columns") and "must be" in problem for problem in found), found


def test_all_problems_are_told_at_once() -> None:
    text = GOOD.replace("schema: log", "schema: Log").replace("type: bigint", "type: int").replace("Tokyo", "Tokio")
    assert [problem.split(":")[1].strip() for problem in problems(text)] == [
        "columns[1].type",
        "schema",
        "partition.timezone",
    ]


def test_a_contract_is_part_of_the_definition_and_stored_only_where_it_says_something() -> None:
    silent = parse_table_file(GOOD, PATH)
    assert silent.contract == Contract()
    assert "contract" not in silent.to_json()
    frozen = parse_table_file(f"{GOOD}contract: {{new_fields: freeze, misfits: quarantine}}\n", PATH)
    assert frozen.contract == Contract(new_fields="freeze", misfits="quarantine")
    assert TableDefinition.from_json(frozen.to_json()) == frozen
    change = ChangeSetting("contract", frozen.contract)
    assert describe("log.pv_log", [change]) == ("contract of log.pv_log: new fields freeze, misfits quarantine",)


def test_a_contract_that_says_something_else_is_told() -> None:
    assert problems(f"{GOOD}contract: {{new_fields: freez, misfit: empty}}\n") == [
        "22: contract.misfit: is not a known field (known: misfits, most_columns, new_fields); did you mean misfits?",
        "22: contract.new_fields: must be one of evolve, report, freeze; did you mean freeze?",
    ]


def test_pairs_of_escapes_are_the_character_that_they_mean_in_json() -> None:
    text = GOOD.replace("description: Page views", r'description: "\ud83d\ude00 views"')
    assert parse_table_file(text, PATH).description == "\N{GRINNING FACE} views"


@pytest.mark.parametrize(
    ("line", "field", "told"),
    [
        (r'description: "\ud83d"', "description", "has a NUL or half a character in it (at character 1)"),
        (r'owner: "a\0b"', "owner", "has a NUL or half a character in it (at character 2)"),
        (
            r'  - {name: odd, type: string, source: "a\0b"}',
            "source",
            "has a NUL or half a character in it (at character 2)",
        ),
        (
            r'  - {name: odd, type: string, source: [a, "\ud83d"]}',
            "source",
            "has a NUL or half a character in it (at character 1)",
        ),
        (
            r"""  - {name: odd, type: string, value: "a || '\0'"}""",
            "value",
            "has a NUL or half a character in it (at character 7)",
        ),
        (
            r"""  - {name: odd, type: string, source: '$["\u0000"]'}""",
            "source",
            "names a key that has a NUL or half a character in it",
        ),
    ],
)
def test_text_that_postgresql_does_not_take_is_told_with_its_field(line: str, field: str, told: str) -> None:
    text = "schema: log\ntable: t\nstreams: [{name: t, url: 's3://staging/t/'}]\n"
    columns = "columns:\n  - {name: time, type: timestamp, required: true}\n"
    text += f"{columns}{line}\n" if line.startswith(" ") else f"{line}\n{columns}"
    (found,) = [problem for problem in problems(text) if told in problem]
    assert found.partition(": ")[2] == f"{'columns[1].' * line.startswith(' ')}{field}: {told}"
