"""The model of records: what it says of each change."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from prism_assets.domain.columns.types import (
    BigIntType,
    ColumnType,
    DecimalType,
    SmallIntType,
    StringType,
    TimestampType,
)
from prism_assets.domain.records.joins import Group, JoinOptions, Member
from prism_assets.domain.records.model import Change, RecordModel

TYPES: dict[str, ColumnType] = {
    "id": StringType(),
    "time": TimestampType(),
    "page": StringType(),
    "version": BigIntType(),
    "small": SmallIntType(),
    "price": DecimalType(4, 2),
}


def a_model(*members: Member, window: int | None = 60, owner: bool = False) -> RecordModel:
    groups = (Group(name="front", sequence=("time",)), Group(name="back", sequence=("version",), owner=owner))
    join = JoinOptions(key=("id",), groups=groups, members=members, window_seconds=window, lateness_seconds=10)
    return RecordModel(join, TYPES, "time")


PAGE = Member(column="page", group="front")


def a_change(group: str, line: int, second: float, **values: Any) -> Change:
    deleted = values.pop("deleted", False)
    return Change(
        group=group, identity=(7, line), time=int(second * 1_000), values={"id": "a", **values}, deleted=deleted
    )


def test_changes_at_most_a_window_apart_are_one_record() -> None:
    model = a_model(PAGE)
    changes = [a_change("front", line, second, page="x") for line, second in enumerate([120, 0, 60, 180.001])]
    records = model.records_of(changes)
    assert [(record.first_event, record.last_event) for record in records] == [(0, 120_000), (180_001, 180_001)]
    assert [model.settles_at(record) for record in records] == [190_000, 250_001]


def test_a_key_has_one_record_for_ever_without_a_window() -> None:
    model = a_model(PAGE, window=None)
    (record,) = model.records_of([a_change("front", 0, 0, page="x"), a_change("front", 1, 10**9, page="y")])
    assert record.values == {"page": "y", "version": None}
    assert model.settles_at(record) is None


def test_each_change_counts_once() -> None:
    model = a_model(Member(column="small", group="front", merge="sum"))
    (record,) = model.records_of([a_change("front", 0, 0, small=3)] * 3)
    assert record.values["small"] == 3


@pytest.mark.parametrize(
    ("column", "values", "total"),
    [
        ("small", [30_000, 2_767], 32_767),
        ("small", [30_000, 2_768], None),
        ("small", [30_000, 30_000, -30_000], 30_000),
        ("price", [Decimal("99.98"), Decimal("0.01")], Decimal("99.99")),
        ("price", [Decimal("99.99"), Decimal("0.01")], None),
        ("price", [None, None], None),
    ],
)
def test_a_sum_that_its_column_cannot_hold_is_null(column: str, values: list[Any], total: Any) -> None:
    model = a_model(Member(column=column, group="front", merge="sum"))
    changes = [a_change("front", line, 0, **{column: value}) for line, value in enumerate(values)]
    (record,) = model.records_of(changes)
    assert record.values[column] == total


def test_a_change_without_key_group_or_sequence_is_of_no_record() -> None:
    model = a_model(PAGE)
    changes = [
        Change(group="front", identity=(1, 0), time=0, values={"page": "x"}),
        a_change("middle", 1, 0, page="x"),
        a_change("back", 2, 0, version=None),
    ]
    assert model.records_of(changes) == []


def test_it_says_what_became_of_each_change() -> None:
    model = a_model(Member(column="page", group="back"), Member(column="small", group="back", merge="last_non_null"))
    (record,) = model.records_of(
        [
            a_change("back", 1, 0, version=1, page="x", small=4),
            a_change("back", 2, 1, version=2, page="y"),
            a_change("back", 3, 2, version=2, page="z"),
        ]
    )
    assert record.values == {"version": 2, "page": "z", "small": 4}
    assert [(fate.won, fate.why, fate.columns) for fate in record.fates] == [
        (False, "line 3 of object 7 has a greater sequence", ("small",)),
        (False, "line 3 of object 7 has the same sequence, and comes later", ()),
        (True, "has the greatest sequence in back", ("version", "page")),
    ]


def test_it_says_that_a_delete_won() -> None:
    model = a_model(Member(column="page", group="back"), owner=True)
    (record,) = model.records_of(
        [
            a_change("front", 1, 0, page="x"),
            a_change("back", 2, 1, version=2, deleted=True),
            a_change("back", 3, 2, version=1),
        ]
    )
    assert not record.is_visible
    assert [fate.why for fate in record.fates] == [
        "has the greatest sequence in front",
        "line 2 of object 7 has a greater sequence and deletes",
        "deletes in back",
    ]


def test_a_delete_takes_the_values_of_before_and_none_of_later() -> None:
    model = a_model(Member(column="page", group="back", merge="last_non_null"))
    changes = [
        a_change("back", 1, 0, version=1, page="x"),
        a_change("back", 2, 0, version=2, deleted=True),
        a_change("back", 3, 0, version=3, page=None),
    ]
    (record,) = model.records_of(changes)
    assert record.values["page"] is None
    (record,) = model.records_of([*changes, a_change("back", 4, 0, version=2, page="y")])
    assert record.values["page"] == "y"
