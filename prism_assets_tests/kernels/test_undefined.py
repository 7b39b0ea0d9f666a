"""Fields without a column: both ways of reading count them alike, for any lines."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drift import MOST_KEYS
from prism_assets.domain.tables.options import EMPTY, FREEZE, REPORT, SET_ASIDE, Contract
from prism_assets.kernels.json.undefined import sampled_lines
from prism_assets_tests.kernels.builders import Lake, Outcome, a_column, a_table, an_object

TABLE = a_table(
    a_column("v", "bigint", 2), a_column("w", "string", 3, sources=("$.o.p",)), a_column("é", "string", 4)
)  # fmt: skip


def under(table: TableDefinition, new_fields: str = REPORT, misfits: str = EMPTY) -> TableDefinition:
    return replace(table, contract=Contract(new_fields=new_fields, misfits=misfits))


def seen(outcome: Outcome) -> list[tuple[str, str, int, int]]:
    return [(item.key, item.kind, item.count, item.line) for item in outcome.result.undefined]


def test_fields_are_counted_by_key_and_kind_with_their_first_line(lake: Lake) -> None:
    rows: list[dict[str, Any] | str] = [{"v": number, "more": "x"} for number in range(50)]
    rows[7] = {"v": 7, "more": 1.5, "flag": True, "list": [{"in": 1}], "null": None}
    rows[8] = '{"time": "2026-03-01T12:00:00Z" , "v" : 8 , "more" : { "v": 1 }, "a\\u0062c": "\\"x\\": 1"}'
    outcome = lake.both(an_object(*rows), TABLE)
    assert seen(outcome) == [
        ("abc", "text", 1, 9),
        ("flag", "boolean", 1, 8),
        ("list", "nested", 1, 8),
        ("more", "nested", 1, 9),
        ("more", "number", 1, 8),
        ("more", "text", 48, 1),
    ]


def test_of_lines_that_are_not_read_nothing_is_counted(lake: Lake) -> None:
    lines = ['{"x": 1', '{"v": 1, "v": 2, "x": 1}', '["x"]', '{"x": NaN}', '{"time": "never", "y": 1}']
    assert seen(lake.both(an_object(*lines, *({"v": n} for n in range(30))), TABLE)) == [("y", "number", 1, 5)]


def test_where_a_column_takes_all_other_keys_none_is_undefined(lake: Lake) -> None:
    table = a_table(a_column("rest", "json", 2, sources=("*",)))
    assert seen(lake.both(an_object({"x": 1}), table)) == []
    table = a_table(a_column("some", "json", 2, sources=("/^x/",)))
    assert seen(lake.both(an_object({"x1": 1, "y": 2}), table)) == [("y", "number", 1, 1)]


def test_keys_of_any_number_and_length_are_bounded(lake: Lake) -> None:
    content = an_object(*({f"k{number:05}": 1, "v": 1} for number in range(2 * MOST_KEYS)), {"x" * 5_000: 1})
    found = seen(lake.convert(content, TABLE))
    assert len(found) == MOST_KEYS
    assert seen(lake.convert(an_object({"x" * 5_000: 1}), TABLE)) == [("x" * 200 + "…", "number", 1, 1)]


def test_keys_that_are_alike_but_for_a_letter_are_told_apart(lake: Lake) -> None:
    """The beginning, the end and the length of a key do not identify a key."""
    name = "request_header_of_the_client_with_a_long_name"
    table = a_table(a_column("v", "bigint", 2, source=name))
    for place in range(len(name)):
        other = f"{name[:place]}#{name[place + 1 :]}"
        content = an_object(*({name: 1, other: 2} for _ in range(3)))
        assert seen(lake.convert(content, table)) == [(other, "number", 3, 1)]


@pytest.mark.parametrize("contract", [REPORT, FREEZE])
def test_a_frozen_table_sets_lines_with_undefined_fields_aside(lake: Lake, contract: str) -> None:
    rows: list[dict[str, Any]] = [{"v": number} for number in range(200)]
    rows[150] = {"v": 150, "new": 1, "newer": 2}
    rows[160] = {"v": 160, "new": None}
    outcome = lake.both(an_object(*rows), under(TABLE, contract))
    assert seen(outcome) == [("new", "number", 1, 151), ("newer", "number", 1, 151)]
    assert outcome.reasons == ({"undefined_field": 1} if contract == FREEZE else {})
    if contract == FREEZE:
        (line,) = outcome.quarantined
        assert (line["line"], line["column"]) == (151, "new")
    assert len(outcome.rows) == 200 - sum(outcome.reasons.values())


@pytest.mark.parametrize("contract", [REPORT, FREEZE])
@pytest.mark.parametrize("value", ["true", "null", "1", '"x"'])
def test_a_key_that_is_the_character_zero_is_a_field_like_others(lake: Lake, contract: str, value: str) -> None:
    rows: list[dict[str, Any] | str] = [{"v": number} for number in range(200)]
    rows[150] = f'{{"time": "2018-10-24T12:00:00Z", "v": 150, "\\u0000": {value}}}'
    table = a_table(a_column("v", "bigint", 2))
    outcome = lake.both(an_object(*rows), under(table, contract))
    assert [item[2:] for item in seen(outcome)] == ([] if value == "null" else [(1, 151)])
    assert len(outcome.rows) == (199 if contract == FREEZE and value != "null" else 200)


@pytest.mark.parametrize("misfits", [EMPTY, SET_ASIDE])
def test_lines_with_values_that_do_not_fit_are_set_aside_where_the_contract_says_so(lake: Lake, misfits: str) -> None:
    table = a_table(a_column("v", "bigint", 2), a_column("s", "string", 3, length=2))
    rows: list[dict[str, Any]] = [{"v": number, "s": "ab"} for number in range(100)]
    rows[10]["v"], rows[11]["s"] = "many", "abc"
    outcome = lake.both(an_object(*rows), under(table, misfits=misfits))
    if misfits == EMPTY:
        assert outcome.value_errors == {("v", "unfit"): 1, ("s", "cut"): 1}
        return
    assert (outcome.reasons, outcome.value_errors) == ({"misfit": 2}, {})
    assert [(line["line"], line["column"]) for line in outcome.quarantined] == [(11, "v"), (12, "s")]


KEYS = st.sampled_from(["v", "o", "é", "x", "y", "a b", 'q"', "b\\", "longer_than_eight", "über", "", "{", ":"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('ab"\\{}[]:, é\n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
LINES = st.lists(st.dictionaries(KEYS, VALUES, max_size=5), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(lines=LINES, ascii_only=st.booleans(), spaces=st.sampled_from([(", ", ": "), (",", ":"), (" , ", " : ")]),
       frozen=st.booleans())  # fmt: skip
def test_both_ways_and_python_count_alike(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[dict[str, Any]],
    ascii_only: bool,
    spaces: tuple[str, str],
    frozen: bool,
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    texts = [
        json.dumps({"time": "2026-03-01T12:00:00Z", **line}, ensure_ascii=ascii_only, separators=spaces)
        for line in lines
    ]
    outcome = lake.both(an_object(*texts), under(TABLE, FREEZE if frozen else REPORT))
    expected = Counter(
        key for line in lines for key, value in line.items() if key not in ("v", "o", "é") and value is not None
    )
    counted = Counter[str]()
    for item in outcome.result.undefined:
        counted[item.key] += item.count
    assert counted == expected


def test_only_some_lines_of_a_large_object_are_looked_at_but_all_of_a_frozen_table(tmp_path: Path) -> None:
    some = random.Random(1)
    rows = [{"v": n, "pad": "x" * 400, **({"rare": n} if some.random() < 0.001 else {})} for n in range(20_000)]
    lake = Lake(tmp_path)
    rare = [number for number, row in enumerate(rows, 1) if "rare" in row]
    found = seen(lake.convert(an_object(*rows), under(TABLE, FREEZE)))
    assert found == [("pad", "text", 20_000, 1), ("rare", "number", len(rare), rare[0])]
    numbers = np.arange(1, 20_001)
    some_lines = set(numbers[sampled_lines(numbers)].tolist())
    assert 2_000 < len(some_lines) < 2_300
    rare = [number for number in rare if number in some_lines]
    found = seen(lake.both(an_object(*rows), TABLE))
    assert found == [("pad", "text", len(some_lines), 1), ("rare", "number", len(rare), rare[0])]
