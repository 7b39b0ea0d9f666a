"""Keys matched by erasures: in the parts predicates can be computed on, as for every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from prism_assets.kernels.expressions.predicate import Matches, Predicate, make_erasure_rule
from prism_assets.kernels.field_ids import field_with_id
from prism_assets.kernels.records import erasing
from prism_assets.kernels.records.erasing import find_erased
from prism_assets_tests.kernels.builders import a_column, a_table

TABLE = a_table(a_column("id", "string", 2), a_column("shard", "integer", 3))
ROWS = 40


@pytest.mark.parametrize(
    ("where", "wanted", "counts"),
    [
        ("id LIKE 'r3%'", {3, *range(30, 40)}, [16, 16, 8]),
        ("id IN ('r1', 'r2', 'r39', 'none')", {1, 2, 39}, [2, 0, 1]),
        ("shard IN (4, 18, 123456789012345) AND id > 'r15'", {4, 18}, [1, 1, 0]),
        ("id = 'r17' AND CAST(id AS integer) = 1", set(), [0, 1, 0]),
    ],
)
def test_predicates_see_so_many_rows_as_a_row_group_has_and_those_with_their_values(
    monkeypatch: pytest.MonkeyPatch, where: str, wanted: set[int], counts: list[int]
) -> None:
    monkeypatch.setattr(erasing, "MERGED_ROW_GROUP", 16)
    seen = []
    matches = Predicate.matches

    def watched(predicate: Predicate, columns: Mapping[int, Any], count: int) -> Matches:
        seen.append(count)
        return matches(predicate, columns, count)

    monkeypatch.setattr(Predicate, "matches", watched)
    keys = [f"r{number}" for number in range(ROWS)]
    fields = [field_with_id("id", pa.string(), 2), field_with_id("shard", pa.int32(), 3)]
    rows = pa.table([pa.array(keys), pa.array(range(ROWS), pa.int32())], schema=pa.schema(fields))
    found = find_erased([replace(make_erasure_rule(TABLE, where), erasure_id=7)], rows)
    assert set(found.mask.nonzero()[0].tolist()) == wanted
    assert set(found.rules[found.mask].tolist()) <= {7}
    assert found.undecided == ("CAST" in where)
    assert seen == counts


def test_columns_that_a_kernel_computed_beside_the_key_are_no_columns_of_predicates() -> None:
    fields = [field_with_id("id", pa.string(), 2), field_with_id("shard", pa.int32(), 3), pa.field("_day", pa.int64())]
    rows = pa.table([["a", "b"], pa.array([1, 2], pa.int32()), [20_000, 20_001]], schema=pa.schema(fields))
    found = find_erased([replace(make_erasure_rule(TABLE, "id = 'b'"), erasure_id=7)], rows)
    assert found.mask.tolist() == [False, True]
