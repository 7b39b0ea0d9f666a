"""Merging stored records is associative, commutative and idempotent, to the last hidden column."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from prism_assets.domain.columns.column import Column
from prism_assets.domain.records.joins import Group, JoinOptions, Member
from prism_assets.domain.records.model import Change
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.records.merging import merge_records
from prism_assets.kernels.records.shape import LiftedChanges, RecordShape
from prism_assets_tests.kernels.builders import Lake, a_column, a_table
from prism_assets_tests.kernels.records.builders import MEMBERS, FoldedTable, a_change, a_join, a_join_table
from prism_assets_tests.kernels.records.histories import values

UNCOUNTED = tuple(
    replace(member, merge="last_non_null") if member.merge in ("sum", "count") else member for member in MEMBERS
)


def lifted(
    lake: Lake, join: JoinOptions, changes: list[Change], definition: TableDefinition | None = None
) -> tuple[RecordShape, pa.Table]:
    """Changes as records of one change, as the kernel lifts them."""
    table = FoldedTable(lake, definition or a_join_table(join))
    shape = RecordShape(table.table, join)
    rows = lake.table_at(table.commit(changes).key)
    parts = LiftedChanges(shape, rows.append_column("_p_committed", pa.nulls(rows.num_rows, pa.int64())))
    return shape, pa.table([parts.column(name) for name in shape.stored.names], schema=shape.stored)


def merged(shape: RecordShape, *parts: pa.Table) -> pa.Table:
    """One record of all parts."""
    whole = pa.concat_tables(parts)
    nothing = LiftedChanges(shape, shape.changes.empty_table())
    found = merge_records(shape, whole, nothing, np.zeros(whole.num_rows, np.int64), 1)
    return found.into_table(np.zeros(1, np.int64)).cast(shape.stored)


def some_changes(chance: random.Random) -> list[Change]:
    return [
        a_change(group, (number, 0), chance.randint(0, 5), **values(chance, group))
        for number in range(chance.randint(3, 12))
        for group in [chance.choice(["front", "back", "counted"])]
    ]


@pytest.mark.parametrize("seed", range(30))
def test_what_was_merged_before_makes_no_difference(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    shape, parts = lifted(lake, a_join(), some_changes(chance))
    whole = merged(shape, parts)
    for _ in range(3):
        order = np.array(chance.sample(range(parts.num_rows), parts.num_rows))
        cut = chance.randint(1, parts.num_rows - 1)
        left, right = parts.take(order[:cut]), parts.take(order[cut:])
        assert merged(shape, merged(shape, left), merged(shape, right)).to_pylist() == whole.to_pylist()
        assert merged(shape, merged(shape, left), right).to_pylist() == whole.to_pylist()
    assert merged(shape, whole).to_pylist() == whole.to_pylist()


@pytest.mark.parametrize("seed", range(10))
def test_what_is_merged_twice_makes_no_difference(lake: Lake, seed: int) -> None:
    """Except sums and counts; folds give each change to these once."""
    shape, parts = lifted(lake, a_join(members=UNCOUNTED), some_changes(random.Random(seed)))
    whole = merged(shape, parts)
    assert merged(shape, whole, parts.slice(0, 2), whole).to_pylist() == whole.to_pylist()


def test_a_member_is_merged_by_each_rule() -> None:
    assert {member.merge for member in MEMBERS} == {
        "winner", "last_non_null", "first", "min", "max", "sum", "count",
    }  # fmt: skip
    assert Member(column="page", group="front") in MEMBERS


LEAST = -(1 << 63)
_COLUMNS = (
    a_column("id", "string", 2, required=True), a_column("shard", "bigint", 3, required=True),
    a_column("tick", "bigint", 4),
)  # fmt: skip


def one_record(lake: Lake, column: Column, merge: str, *changes: Change) -> object:
    """Returns a column of the record made of changes in the order of `tick`."""
    join = a_join(
        groups=(Group(name="g", sequence=("tick",)),),
        members=(Member(column=column.name, group="g", merge=merge),),
        key=("id", "shard"),
    )
    table = replace(a_table(*_COLUMNS, column), join=join, table_id=1, version=1)
    return merged(*lifted(lake, join, list(changes), table))[column.name][0].as_py()


def test_the_least_of_all_numbers_is_the_least(lake: Lake) -> None:
    found = one_record(
        lake, a_column("v", "bigint", 5), "min", a_change("g", 1, 0, tick=1, v=5), a_change("g", 2, 0, tick=2, v=LEAST)
    )
    assert found == LEAST


def test_the_first_of_all_places_is_the_first(lake: Lake) -> None:
    late, early = a_change("g", 1, 0, tick=7, v="late"), a_change("g", 2, 0, tick=LEAST, v="early")
    assert one_record(lake, a_column("v", "string", 5), "first", late, early) == "early"


@pytest.mark.parametrize(
    ("precision", "scale"), [(1, 0), (10, 2), (18, 0), (19, 0), (20, 0), (28, 0), (28, 2), (28, 28)]
)
def test_decimals_of_every_size_are_summed_up_to_their_last_digit(lake: Lake, precision: int, scale: int) -> None:
    column = a_column("v", "decimal", 5, precision=precision, scale=scale)
    step = Decimal(1).scaleb(-scale)
    most = Decimal(10**precision - 1).scaleb(-scale)
    changes = [a_change("g", 1, 0, tick=1, v=most - step), a_change("g", 2, 0, tick=2, v=step)]
    assert one_record(lake, column, "sum", *changes) == most
    assert one_record(lake, column, "sum", *changes, a_change("g", 3, 0, tick=3, v=step)) is None
