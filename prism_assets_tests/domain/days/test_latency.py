"""Latencies: the median is that of rows, not of objects."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.days.latency import Latencies, summarize


def test_without_rows_there_is_no_delay() -> None:
    assert summarize([]) is None
    assert summarize([(0, 5.0)]) is None


def test_an_object_counts_by_its_rows() -> None:
    assert summarize([(1, 100.0), (1, 90.0), (10, 5.0)]) == Latencies(median=5.0, longest=100.0)


def test_a_clock_that_lags_counts_as_no_delay() -> None:
    assert summarize([(1, -3.0)]) == Latencies(median=0.0, longest=0.0)


@given(st.lists(st.tuples(st.integers(1, 20), st.floats(0, 1e6)), min_size=1))
def test_half_of_the_rows_took_no_longer_than_the_median(delays: list[tuple[int, float]]) -> None:
    found = summarize(delays)
    assert found is not None
    rows = sum(count for count, _ in delays)
    assert sum(count for count, seconds in delays if seconds <= found.median) * 2 >= rows
    assert sum(count for count, seconds in delays if seconds < found.median) * 2 < rows
    assert found.longest == max(seconds for _, seconds in delays)
