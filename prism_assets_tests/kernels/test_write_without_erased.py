"""Rewriting: matching rows go, all others stay unchanged and in place, and objects without a match are not written."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.errors import ObjectMissing, WrongUse
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.work import from_json, to_json
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.kernels import write
from prism_assets.kernels.erased_lines import ErasedLines
from prism_assets.kernels.expressions.predicate import Predicate, make_erasure_rule
from prism_assets.kernels.expressions.session import connect
from prism_assets.kernels.expressions.tree import values_of
from prism_assets.kernels.parquet import stored
from prism_assets.kernels.write import write_object
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object, rows_of

TABLE = a_table(a_column("v", "string", 2), a_column("n", "bigint", 3))
OUT = "p/merged/out-r1.parquet"


def a_merged_object(lake: Lake, rows: int) -> DataFile:
    lines = [{"n": number, "v": f"v{number % 7}"} for number in range(rows)]
    objects = lake.convert(an_object(*lines), TABLE).result.objects
    written = lake.merge(objects, TABLE).written
    assert written is not None
    fields = ("bucket", "key", "content_length", "row_count", "fingerprint", "min_time", "max_time", "file_format")
    return DataFile(**{name: getattr(written, name) for name in fields})


def rewritten(lake: Lake, file: DataFile, where: str, key: str | None = OUT, **more: Any) -> WriteResult:
    rule = replace(make_erasure_rule(TABLE, where), erasure_id=1)
    task = WriteTask(
        number=7, inputs=(file,), erasures=(rule,), table_id=1, definition_version=1, output_key=key, **more
    )
    return write_object(task, TABLE, lake.stores, lake.lake)


def numbers(lake: Lake, key: str) -> list[int]:
    return [row["n"] for row in rows_of(lake.stores.get("lake", key))]


@pytest.mark.parametrize("whole", [1, 1 << 30])
def test_the_other_rows_stay_in_their_order_and_sums_are_those_of_before(
    lake: Lake, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "READ_WHOLE", whole)
    file = a_merged_object(lake, 100)
    before = numbers(lake, file.key)
    result = rewritten(lake, file, "v = 'v3' OR n = 5", metric_columns=(3,))
    assert result.failure is None
    assert (result.rows, result.matching, result.undecided) == (100, 15, 0)
    written = result.written
    assert written is not None
    assert numbers(lake, OUT) == [number for number in before if number % 7 != 3 and number != 5]
    assert (written.row_count, written.rows_erased) == (85, 15)
    assert combine([written.fingerprint, written.erased_fingerprint]) == file.fingerprint
    assert written.metrics[0].upper == 99
    assert written.content_length == lake.stores.length("lake", OUT)
    again = rewritten(lake, file, "v = 'v3' OR n = 5", metric_columns=(3,))
    assert again == result, "the same object under the same key"


def test_an_object_without_such_a_row_is_not_written_and_where_statistics_tell_not_read(lake: Lake) -> None:
    file = a_merged_object(lake, 100)
    found = rewritten(lake, file, "n = 4711")
    assert (found.written, found.matching, found.row_groups_read) == (None, 0, 0)
    found = rewritten(lake, file, "n + 0 = 4711")
    assert (found.written, found.matching, found.row_groups_read) == (None, 0, 1)
    with pytest.raises(ObjectMissing):
        lake.stores.get("lake", OUT)


def test_a_predicate_goes_on_over_columns_that_are_wider_than_when_it_was_made() -> None:
    table = a_table(
        a_column("n", "integer", 2), a_column("x", "real", 3), a_column("d", "decimal", 4, precision=6, scale=2)
    )
    single = np.array([0.1, 0.2, 0.1], np.float32)
    narrow = {2: pa.array([7, 1, 8], pa.int32()), 3: pa.array(single), 4: pa.array([1, 2, 3], pa.decimal128(6, 2))}
    big, long = 3_000_000_000, 12_345_678
    wide = {
        2: pa.array([7, big, 8], pa.int64()),
        3: pa.array(np.array([single[0], 0.2, 0.1], np.float64)),  # a value of before, and new ones
        4: pa.array([1, long, 3], pa.decimal128(10, 2)),
    }
    for where, expected in (
        ("x = 0.1", [True, False, True]),
        ("n + 1 = 8 OR d = 3", [True, False, True]),
        ("n < 9 AND d < 9", [True, None, True]),
    ):
        with Predicate(replace(make_erasure_rule(table, where), erasure_id=1)) as predicate:
            for columns, fits in ((narrow, True), (wide, False)):
                found = predicate.matches(columns, 3)
                assert found.matching.tolist() == [fits if wanted is None else wanted for wanted in expected]
                assert not found.undecided.any()


def test_without_a_key_rows_are_counted_and_nothing_is_written(lake: Lake) -> None:
    found = rewritten(lake, a_merged_object(lake, 100), "n < 10", key=None)
    assert (found.matching, found.written) == (10, None)


def test_an_object_of_which_no_row_is_left_can_be_merged_as_any_other(lake: Lake) -> None:
    file = a_merged_object(lake, 3)
    written = rewritten(lake, file, "n >= 0").written
    assert written is not None
    assert (written.row_count, written.fingerprint, written.rows_erased) == (0, 0, 3)
    alone = lake.merge([written], TABLE, key="p/merged/alone.parquet").written
    assert alone is not None
    assert (alone.row_count, numbers(lake, "p/merged/alone.parquet")) == (0, [])


def test_an_object_that_is_not_the_recorded_one_is_left_and_named(lake: Lake) -> None:
    file = a_merged_object(lake, 10)
    for wrong in (
        replace(file, fingerprint=file.fingerprint + 1),
        replace(file, row_count=9),
        replace(file, content_length=file.content_length - 1),
    ):
        result = rewritten(lake, wrong, "n = 1")
        assert result.failure is not None
        assert not result.failure.transient
        assert result.written is None


def test_messages_tell_nothing_of_the_predicate(lake: Lake) -> None:
    file = a_merged_object(lake, 10)
    result = rewritten(lake, file, "CAST(v AS integer) = 424242 OR n = 1")
    assert result.failure is not None
    assert "fails on" in result.failure.message
    assert "424242" not in result.failure.message
    assert "424242" not in repr(result)
    assert "424242" not in repr(make_erasure_rule(TABLE, "n = 424242"))


def test_rows_of_several_row_groups(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", 16)
    file = a_merged_object(lake, 100)
    result = rewritten(lake, file, "n IN (3, 4, 5)")
    assert (result.matching, result.row_groups_read) == (3, 1)
    assert numbers(lake, OUT) == [0, 1, 2, *range(6, 100)]


@st.composite
def predicates(draw: st.DrawFn) -> str:
    """Conditions over v and n, joined as they come."""
    values = st.one_of(st.integers(-3, 12).map(str), st.sampled_from(["'v1'", "'v'", "'w'", "'7'", "NULL", "1.0"]))
    names = st.sampled_from(["v", "n"])
    conditions = st.one_of(
        st.tuples(names, st.sampled_from(["=", "<", ">=", "<>"]), values).map(" ".join),
        st.tuples(values, st.just("="), names).map(" ".join),
        st.tuples(names, st.lists(values, min_size=1, max_size=3)).map(
            lambda pair: f"{pair[0]} IN ({', '.join(pair[1])})"
        ),
        names.map(lambda name: f"{name} IS NULL"),
    )
    parts = draw(st.lists(conditions, min_size=1, max_size=3))
    joined = parts[0]
    for part in parts[1:]:
        joined = draw(st.sampled_from([f"{joined} AND {part}", f"{joined} OR {part}", f"({joined}) AND NOT ({part})"]))
    return joined


@given(predicates(), st.integers(0, 2**16))
def test_no_row_that_matches_lies_where_statistics_exclude_it(where: str, seed: int) -> None:
    draw = random.Random(seed)
    values = values_of(connect(), where)
    rows = [(draw.choice(["v1", "v", "w", "7", None]), draw.choice([-3, 0, 7, 12, None])) for _ in range(20)]
    columns = {2: pa.array([v for v, _ in rows], pa.string()), 3: pa.array([n for _, n in rows], pa.int64())}
    try:
        rule = replace(make_erasure_rule(TABLE, where), erasure_id=1)
    except WrongUse:  # types that contradict each other
        return
    with Predicate(rule) as predicate:
        matching = predicate.matches(columns, len(rows)).matching
    assert {item.column_id for item in rule.values} <= {2 if name == "v" else 3 for name in values}
    for wanted in rule.values:
        for row, matches in zip(rows, matching.tolist(), strict=True):
            value = row[0] if wanted.column_id == 2 else row[1]
            if matches:
                assert value is not None
                assert not wanted.lie_outside(value, value), (where, row)


def test_a_rule_travels_and_is_told_without_its_predicate() -> None:
    rule = make_erasure_rule(TABLE, "n = 42 AND v = 'x'")
    assert [(item.column_id, item.values) for item in rule.values] == [(2, ("x",)), (3, (42,))]
    assert [column.name for column in rule.defined] == ["v", "n"]
    task = WriteTask(
        number=1,
        inputs=(DataFile(bucket="b", key="k", content_length=1, row_count=1, fingerprint=1),),
        output_key=None,
        erasures=(rule,),
        table_id=1,
        definition_version=1,
    )
    assert from_json(WriteTask, to_json(task)) == task
    assert "42" not in repr(rule)


@pytest.mark.parametrize(
    ("where", "column", "values", "expected"),
    [
        ("x = 16777216", 3, pa.array([16777216.0, 16777217.0, None, 1e300], pa.float64()), [True, False, False, False]),
        ("isinf(x)", 3, pa.array([1e300, np.inf, np.nan], pa.float64()), [False, True, False]),
        ("bit_count(n) = 32", 2, pa.array([-1, 3_000_000_000, -(1 << 40)], pa.int64()), [True, False, False]),
        ("d > 9999", 4, pa.array([Decimal("9999.99"), Decimal("10000.00")], pa.decimal128(10, 2)), [True, True]),
    ],
)
def test_a_predicate_means_what_it_did_of_values_that_its_narrower_type_holds(
    where: str, column: int, values: pa.Array, expected: list[bool]
) -> None:
    table = a_table(
        a_column("n", "integer", 2), a_column("x", "real", 3), a_column("d", "decimal", 4, precision=6, scale=2)
    )
    with Predicate(replace(make_erasure_rule(table, where), erasure_id=1)) as predicate:
        found = predicate.matches({column: values}, len(values))
    assert found.matching.tolist() == expected
    assert not found.undecided.any()


def test_a_predicate_that_is_none_of_the_wider_type_leaves_what_only_that_holds_undecided() -> None:
    table = a_table(a_column("n", "integer", 2))
    with Predicate(replace(make_erasure_rule(table, "chr(n) = 'A'"), erasure_id=1)) as predicate:
        found = predicate.matches({2: pa.array([65, 1 << 40, 66], pa.int64())}, 3)
    assert found.matching.tolist() == [True, False, False]
    assert found.undecided.tolist() == [False, True, False]


def test_a_predicate_leaves_a_row_undecided_that_asks_for_too_much_memory() -> None:
    rows = pa.array(["x", "x" * 65_000, "xx", None])
    with Predicate(replace(make_erasure_rule(TABLE, "length(replace(v, 'x', v)) > 1"), erasure_id=1)) as predicate:
        found = predicate.matches({2: rows}, len(rows))
    assert found.matching.tolist() == [False, False, True, False]
    assert found.undecided.tolist() == [False, True, False, False]


def test_lines_are_judged_together_as_each_is_alone() -> None:
    lines = [
        b'{"n": 42, "v": "x"}',
        b'{"n": 7}',
        b'\xef\xbb\xbf{"n": 42}',
        b'{"n": "many"}',
        b'{"n": 42, "v',
        b'{"n":\n42}',
        b'{"n": 42, "v": "a\n"}',
        b"\xff",
        b"[42]",
    ]
    rules = [replace(make_erasure_rule(TABLE, where), erasure_id=number) for number, where in enumerate(WHERES, 1)]
    with ErasedLines(TABLE, rules, {}, 60) as judge:
        found = judge.judge(lines)
        alone = [judge.judge([line]) for line in lines]
        assert not judge.judge([]).matching.size
        assert not judge.judge(lines, unmatched=(1, 2)).undecided.any()
    assert found.matching.tolist() == [bool(item.matching[0]) for item in alone]
    assert found.undecided.tolist() == [bool(item.undecided[0]) for item in alone]
    assert found.matching.tolist() == [True, False, True, False, False, True, False, False, False]
    assert found.undecided.tolist() == [False, False, False, True, True, False, True, True, True]


WHERES = ("n = 42", "v = 'gone'")
