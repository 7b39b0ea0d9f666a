"""Merging stored records is associative, commutative and idempotent, to the last hidden column."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from prism_assets.domain.joins import JoinOptions, Member
from prism_assets.domain.record_model import Change
from prism_assets.kernels.records.merging import merge_records
from prism_assets.kernels.records.shape import LiftedChanges, RecordShape
from prism_assets_tests.kernels.builders import Lake
from prism_assets_tests.kernels.records.builders import MEMBERS, FoldedTable, a_change, a_join, a_join_table
from prism_assets_tests.kernels.records.histories import values

UNCOUNTED = tuple(
    replace(member, merge="last_non_null") if member.merge in ("sum", "count") else member for member in MEMBERS
)


def lifted(lake: Lake, join: JoinOptions, changes: list[Change]) -> tuple[RecordShape, pa.Table]:
    """Changes as records of one change, as the kernel lifts them."""
    table = FoldedTable(lake, a_join_table(join))
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
    """But to sums and counts, to which folds give each change once."""
    shape, parts = lifted(lake, a_join(members=UNCOUNTED), some_changes(random.Random(seed)))
    whole = merged(shape, parts)
    assert merged(shape, whole, parts.slice(0, 2), whole).to_pylist() == whole.to_pylist()


def test_a_member_is_merged_by_each_rule() -> None:
    assert {member.merge for member in MEMBERS} == {
        "winner", "last_non_null", "first", "min", "max", "sum", "count",
    }  # fmt: skip
    assert Member(column="page", group="front") in MEMBERS
