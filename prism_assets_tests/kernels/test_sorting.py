"""Orders of rows: stable for any numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from prism_assets.kernels.parquet.sorting import sorted_positions

LEAST, MOST = -(1 << 63), (1 << 63) - 1


@given(st.lists(st.one_of(st.integers(-2, 2), st.integers(LEAST, MOST))))
@example([])
@example([MOST, LEAST, MOST, LEAST])
@example([LEAST + 1, LEAST, LEAST])
@example([1 << 61, 0, 0, 1 << 61])
@example([1 << 62, 0, 0, 1 << 62])
def test_rows_are_ordered_by_a_number_and_then_by_their_position(numbers: list[int]) -> None:
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert sorted_positions([np.array(numbers, np.int64)]).tolist() == expected
