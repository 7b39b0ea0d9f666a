"""Table files drafted from a sample: the chosen types, and the comments beside them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.columns.column import Column
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import TableName, is_name
from prism_assets.domain.streams.survey import KeyEvidence, Survey, ValueKind
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.draft import draft_table
from prism_assets.domain.tables.drafted_columns import draft_columns
from prism_assets.domain.tables.file import parse_table_file
from prism_assets_tests.builders import utc

NOW = utc("2026-03-01T12:00")
NAME = TableName("log", "events")
MILLISECOND = timedelta(milliseconds=1)


def instant(time: str) -> int:
    return (utc(time) - utc("1970-01-01T00:00")) // MILLISECOND


def evidence(
    key: str, longest: int = 8, unix: str = "", rounded: int = 0, numeric: int = 0, **kinds: int
) -> KeyEvidence:
    """A key with so many values of each kind, named as the members of ValueKind in lower case."""
    counts = Counter({ValueKind[name.upper()]: count for name, count in kinds.items()})
    found = Counter({unix: counts.total()} if unix else {})
    return KeyEvidence(key=key, kinds=counts, longest=longest, unix=found, rounded=rounded, numeric=numeric)


def times(key: str = "time", first: str = "2026-03-01T10:00", last: str = "2026-03-01T11:00") -> KeyEvidence:
    return KeyEvidence(
        key=key, kinds=Counter({ValueKind.INSTANT: 100}), longest=20, earliest=instant(first), latest=instant(last)
    )


def drafted(*found: KeyEvidence, rejected: dict[str, int] | None = None) -> str:
    sample = Survey(keys={item.key: item for item in found}, lines=100, rejected=Counter(rejected or {}))
    return draft_table(NAME, sample, "s3://staging/events/", "events.jsonl", NOW).text


def table(*found: KeyEvidence) -> TableDefinition:
    return parse_table_file(drafted(*found), "events.yaml")


def column(found: KeyEvidence) -> Column:
    """The column of a key beside one with times."""
    columns = table(times("the_time"), found).columns
    assert len(columns) == 2
    return columns[1]


def comment(found: KeyEvidence) -> str:
    """Returns the comment beside a key's column."""
    return drafted(times("the_time"), found).splitlines()[-1].partition("  # ")[2]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (evidence("n", whole=100), "bigint"),
        (evidence("n", whole=99, text=1), "bigint"),
        (evidence("n", whole=98, text=2), "string"),
        (evidence("n", whole=60, fraction=40), "double"),
        (evidence("n", whole=99, huge=1), "string"),
        (evidence("n", whole=99, fraction=1), "double"),
        (evidence("n", whole=98, fraction=1, text=1), "double"),
        (evidence("n", rounded=1, whole=50, fraction=50), "string"),
        (evidence("n", rounded=1, whole=100), "bigint"),
        (evidence("n", day=99, instant=1), "timestamp"),
        (evidence("n", day=99, text=1), "date"),
        (evidence("n", day=99, whole=1), "string"),
        (evidence("n", instant=99, whole=1), "string"),
        (evidence("n", instant=99, numeric=1, text=1), "string"),
        (evidence("n", instant=99, text=1), "timestamp"),
        (evidence("n", instant=99, huge=1), "timestamp"),
        (evidence("n", numeric=1, whole=99, text=1), "string"),
        (evidence("n", whole=50, huge=50), "string"),
        (evidence("n", boolean=100), "boolean"),
        (evidence("n", boolean=50, text=50), "string"),
        (evidence("n", instant=100), "timestamp"),
        (evidence("n", day=100), "date"),
        (evidence("n", instant=50, day=50), "timestamp"),
        (evidence("n", instant=50, text=50), "string"),
        (evidence("n", nested=1, text=99), "json"),
        (evidence("sent_at", unix="milliseconds", whole=100), "timestamp"),
        (evidence("user_id", unix="seconds", whole=100), "bigint"),
        (evidence("n"), "json"),
    ],
)
def test_a_type_loses_nothing_of_almost_all_values(found: KeyEvidence, expected: str) -> None:
    assert column(found).type.keyword == expected


def test_a_text_has_room_for_twice_the_longest_and_is_never_short() -> None:
    assert [column(evidence("t", longest=longest, text=100)).length for longest in (0, 8, 128, 129, 40_000)] == [
        256, 256, 256, 512, 65_535,
    ]  # fmt: skip


def test_a_json_value_has_all_room_there_is_as_nothing_is_left_of_a_longer_one() -> None:
    assert [column(evidence("n", longest=longest, nested=1)).length for longest in (2, 40_000)] == [65_535, 65_535]


def test_every_column_of_text_says_its_length() -> None:
    sample = Survey(lines=100)
    drafted_columns = [*draft_columns(["gone"], sample, ()), *draft_columns(["a"], sample, (), wide=True)]
    assert [str(item).partition("  #")[0] for item in drafted_columns] == [
        "  - {name: gone, type: string, length: 65535}", "  - {name: a, type: string, length: 65535}"
    ]  # fmt: skip
    assert "type: json, length: 65535}" in drafted(times("the_time"), evidence("n"))


def test_what_the_sample_would_lose_is_said_on_top_and_to_the_caller() -> None:
    found = (
        times("the_time"),
        evidence("n", whole=99, text=1),
        evidence("quoted", text=100, numeric=100),
        replace(evidence("message", longest=70_000, text=100), beyond=2),
        replace(evidence("body", longest=70_000, nested=100), beyond=1),
    )
    sample = Survey(keys={item.key: item for item in found}, lines=100)
    draft = draft_table(NAME, sample, "s3://staging/events/", "events.jsonl", NOW)
    assert draft.losses == (
        "n: 1 value is null, of another kind",
        "message: 2 values are cut, longer than 65,535 bytes",
        "body: 1 value is null, longer than 65,535 bytes",
    )
    assert all(f"#   {loss}\n" in draft.text for loss in draft.losses)
    timed = replace(sample, keys={"the_time": found[0]})
    assert draft_table(NAME, timed, "s3://staging/events/", "events.jsonl", NOW).losses == ()


def test_times_may_be_written_out_on_some_lines_and_counted_on_others() -> None:
    mixed = KeyEvidence(
        key="at", kinds=Counter({ValueKind.INSTANT: 80, ValueKind.WHOLE: 20}), longest=20, unix=Counter(milliseconds=20)
    )
    found = column(mixed)
    assert (found.type.name, found.time_unit) == ("timestamp", "milliseconds")
    assert comment(mixed) == "100 of 100 lines; 20 are unix times in milliseconds"
    mixed.key = "order_id"
    assert column(mixed).type.name == "string", "as ids look like unix times"
    alone = replace(mixed, key="timestamp", earliest=instant("2026-03-01T10:00"), latest=instant("2026-03-01T11:00"))
    assert table(alone).partition_column == "timestamp"


def unix(
    first: str = "2026-03-01T10:00",
    *,
    key: str = "sent_at",
    text: int = 0,
    whole: int = 0,
    nested: int = 0,
    **units: int,
) -> KeyEvidence:
    """A key with so many unix times of each unit, and so many other whole numbers, texts and nested values."""
    return KeyEvidence(
        key=key,
        kinds=Counter({ValueKind.WHOLE: whole + sum(units.values()), ValueKind.TEXT: text, ValueKind.NESTED: nested}),
        longest=13,
        unix=Counter(units),
        earliest=instant(first),
        latest=instant("2026-03-01T11:00"),
    )


@pytest.mark.parametrize(
    ("found", "kind", "unit", "said"),
    [
        (unix(milliseconds=100), "timestamp", "milliseconds", ""),
        (unix(milliseconds=99, text=1), "timestamp", "milliseconds", "; 1 are text"),
        (
            unix(milliseconds=99, whole=1),
            "bigint",
            None,
            "; 99 are unix times in milliseconds; 1 are numbers that do not look like times",
        ),
        (
            unix(milliseconds=99, seconds=1),
            "timestamp",
            None,
            "; 99 are unix times in milliseconds; 1 are unix times in seconds",
        ),
        (
            unix("2017-01-01T00:00", milliseconds=99, seconds=1),
            "bigint",
            None,
            "; 99 are unix times in milliseconds; 1 are unix times in seconds",
        ),
        (
            unix(microseconds=99, milliseconds=1),
            "bigint",
            None,
            "; 99 are unix times in microseconds; 1 are unix times in milliseconds",
        ),
    ],
)
def test_numbers_are_times_only_if_their_column_reads_all_of_them_so(
    found: KeyEvidence, kind: str, unit: str | None, said: str
) -> None:
    drafted_column = column(found)
    assert (drafted_column.type.name, drafted_column.time_unit) == (kind, unit)
    assert comment(found) == f"100 of 100 lines{said}"


def test_the_time_of_rows_is_one_though_some_numbers_are_none_and_the_draft_counts_them() -> None:
    found = unix(key="time", milliseconds=198, seconds=1, whole=1, first="2017-01-01T00:00")
    drafted_column = table(found).columns[0]
    assert (drafted_column.type.name, drafted_column.time_unit) == ("timestamp", "milliseconds")
    assert (
        "; 198 are unix times in milliseconds; 1 are unix times in seconds; 1 are numbers that do not look like times; "
        "lines with 2 of the numbers are quarantined, as these are no times in milliseconds"
    ) in drafted(found)


@pytest.mark.parametrize(
    ("found", "kind", "said"),
    [
        (evidence("time", instant=99, nested=1), "timestamp", "100 of 100 lines; 1 are nested"),
        (evidence("time", day=99, nested=1), "date", "100 of 100 lines; 1 are nested"),
        (evidence("time", day=50, instant=49, nested=1), "timestamp", "100 of 100 lines; 1 are nested"),
        (unix(key="time", milliseconds=99, nested=1), "timestamp", "100 of 100 lines; 1 are nested"),
        (unix(key="time", nanoseconds=99, nested=1), "bigint", "99 of 100 are unix times in nanoseconds"),
    ],
)
def test_the_time_of_rows_is_one_though_some_values_are_nested(found: KeyEvidence, kind: str, said: str) -> None:
    assert table(found).column("time").type.name == kind
    assert f"  # {said}\n" in drafted(found)
    assert column(replace(found, key="seen_at")).type.name == "json", "which keeps all that others hold"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("userId", "user_id"),
        ("sourceIPAddress", "source_ip_address"),
        ("time_iso8601", "time_iso8601"),
        ("@timestamp", "timestamp"),
        ("2xx", "c_2xx"),
        ("名前", "c"),
        ("dt", "dt_2"),
        ("a" * 90, "a" * 50),
        ("aB" * 40, "a" + "_ba" * 16),
    ],
)
def test_a_column_is_named_in_snake_case_and_reads_its_key(key: str, name: str) -> None:
    found = column(evidence(key, text=100))
    assert (found.name, found.source) == (name, key)


def test_keys_that_would_have_one_name_get_numbers() -> None:
    columns = table(
        times(), evidence("user_id", text=1), evidence("userId", text=1), evidence("USER ID", text=1)
    ).columns
    assert [item.name for item in columns[1:]] == ["user_id", "user_id_2", "user_id_3"]


@given(st.lists(st.tuples(st.text("aB9_ é", max_size=120), st.integers(0, 3)), max_size=40), st.booleans())
def test_the_parser_takes_every_name_also_of_keys_whose_words_are_short(
    parts: list[tuple[str, int]], alike: bool
) -> None:
    found = {f"{'wOrD' * 30 * alike}{text}{'aB' * 30 * times}": Counter({ValueKind.TEXT: 1}) for text, times in parts}
    sample = Survey(keys={key: KeyEvidence(key=key, kinds=counts) for key, counts in found.items()}, lines=1)
    names = [item.name for item in draft_columns(sample.keys, sample, ["dt_2", "c"])]
    assert [name for name in names if not is_name(name) or name.endswith("_")] == []
    assert len({*names, "dt", "dt_2", "c"}) == len(names) + 3


def test_what_does_not_fit_the_type_is_said_beside_it() -> None:
    assert comment(evidence("n", whole=9_812, text=3)) == "9,815 of 100 lines; 3 are text"
    in_quotes = evidence("n", text=100)
    in_quotes.numeric = 100
    assert comment(in_quotes).endswith(
        "all are numbers in quotes, which double and decimal take, too, and bigint without fractions"
    )


def test_rows_fall_on_days_by_times_that_are_accepted_then_by_the_most_then_by_the_name() -> None:
    long_ago = times("time", "2019-01-01T00:00", "2019-01-02T00:00")
    assert table(long_ago, times("seen")).partition_column == "seen"
    assert table(times("seen"), times("time")).partition_column == "time"
    rare = times("time")
    rare.kinds[ValueKind.INSTANT] = 10
    assert table(rare, times("seen")).partition_column == "seen"


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("timeUnixNano", "time", 'make_timestamp_ns("time_unix_nano")'),
        ("time", "time_2", 'make_timestamp_ns("time")'),
        ("when", "time", 'make_timestamp_ns("when")'),
        ("at", "time", 'make_timestamp_ns("at")'),
    ],
)
def test_a_time_is_computed_of_nanoseconds(key: str, name: str, value: str) -> None:
    found = table(evidence(key, unix="nanoseconds", text=100), evidence("seen_at", unix="nanoseconds", whole=10))
    assert found.partition_column == name
    assert [(item.name, item.type.name, item.value, item.required) for item in found.columns] == [
        (name, "timestamp", value, True),
        (key.replace("UnixNano", "_unix_nano"), "bigint", None, False),
        ("seen_at", "bigint", None, False),
    ]


def test_one_old_date_on_all_lines_is_no_time_of_theirs_unless_its_name_says_so() -> None:
    version = KeyEvidence(
        key="api_version",
        kinds=Counter({ValueKind.DAY: 100}),
        earliest=instant("2020-08-27T00:00"),
        latest=instant("2020-08-27T00:00"),
    )
    created = evidence("created", unix="seconds", whole=100)
    assert table(version, created).partition_column == "created"
    assert table(version).partition_column == "api_version", "where nothing else is a time"
    assert table(replace(version, key="event_date")).partition_column == "event_date"


def test_a_key_with_a_nul_has_no_column_and_the_draft_says_so() -> None:
    text = drafted(times(), evidence("\0", text=1), evidence("a\0b", text=1))
    assert "# Keys with a NUL have no column" in text
    assert len(parse_table_file(text, "events.yaml").columns) == 1


def test_numbers_that_double_would_round_are_told() -> None:
    assert comment(evidence("n", rounded=2, whole=1, fraction=2)) == (
        "3 of 100 lines, at most 8 bytes; 2 numbers more exact than double; 1 are whole numbers; "
        "2 are numbers with a fraction"
    )


def test_the_partition_column_is_required_and_comes_first() -> None:
    found = table(evidence("a", text=1), times("seen"))
    assert [(item.name, item.required) for item in found.columns] == [("seen", True), ("a", False)]


def test_rows_as_old_as_the_sample_are_accepted() -> None:
    assert table(times()).past_days == 21
    old = table(times(first="2025-03-01T00:00", last="2025-03-02T00:00"))
    assert NOW - timedelta(days=old.past_days) < utc("2025-03-01T00:00") - timedelta(days=20)
    assert table(times(last="2026-04-01T00:00")).future_days >= 31


def test_what_was_refused_of_the_sample_is_said_on_top() -> None:
    text = drafted(times(), rejected={"bad_json": 1_200})
    assert text.startswith(
        "# Drafted from 100 JSON objects, one a line, of events.jsonl; 1,200 more lines no object: bad_json."
    )


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (Survey(), "events.jsonl holds no line; take a sample of JSON objects, one a line, plain or in gzip or zstd"),
        (Survey(rejected=Counter(bad_utf8=7)), "none of its lines is a JSON object (7 bad_utf8)"),
        (Survey(rejected=Counter(not_object=1)), "`jq -c '.[]'` makes lines of an array"),
        (Survey(lines=3), "none of its 3 lines has a key"),
        (Survey(lines=3, keys={"user": evidence("user", text=3)}), "no key of the sample holds times"),
        (
            Survey(lines=62, keys={"ts": evidence("ts", instant=60, text=2), "n": evidence("n", whole=62)}),
            "there are ts, n; in ts 60 of 62 values are times, and 99 % are wanted: leave damaged lines out",
        ),
        (Survey(lines=1, keys={"Records": evidence("Records", nested=1)}), "`jq -c '.Records[]'` makes a line of each"),
    ],
)
def test_a_sample_of_which_no_table_can_be_made_is_refused_with_the_reason(sample: Survey, said: str) -> None:
    with pytest.raises(WrongUse) as error:
        draft_table(NAME, sample, "s3://staging/events/", "events.jsonl", NOW)
    assert said in str(error.value)


kinds = st.dictionaries(st.sampled_from(ValueKind), st.integers(1, 1_000)).map(Counter)
keys = st.text(st.characters(codec="utf-8"), max_size=80)


@given(st.dictionaries(keys, st.tuples(kinds, st.integers(0, 1 << 24)), max_size=20))
def test_whatever_the_keys_are_called_and_hold_the_draft_is_a_table_file(
    found: dict[str, tuple[Counter[ValueKind], int]],
) -> None:
    evidences = [KeyEvidence(key=key, kinds=counts, longest=longest) for key, (counts, longest) in found.items()]
    columns = table(*evidences, times("the time")).columns
    assert {item.source for item in columns} == {*(key for key in found if "\0" not in key), "the time"}
