"""Sizes of batches by the slots of the engine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.batch_size import LEAST, BatchSize, batch_size

_MOST = BatchSize(objects=10_000, bytes=10 << 30, merges=640)
_TASK = 16 << 20


def test_up_to_16_slots_a_batch_has_the_least_size() -> None:
    assert {batch_size(slots, _TASK, _MOST) for slots in (1, 2, 16)} == {LEAST}


def test_every_slot_of_a_large_cluster_gets_four_tasks() -> None:
    assert batch_size(100, _TASK, _MOST) == BatchSize(objects=6_400, bytes=100 * 4 * _TASK, merges=400)


@given(st.integers(1, 10**6), st.integers(1, 1 << 40), st.integers(1, 10**6))
def test_settings_limit_every_batch(slots: int, task_bytes: int, most: int) -> None:
    size = batch_size(slots, task_bytes, BatchSize(objects=most, bytes=most, merges=most))
    assert max(size.objects, size.bytes, size.merges) <= most


@given(st.integers(1, 1_000), st.integers(1, 1_000))
def test_more_slots_never_make_a_batch_smaller(slots: int, more: int) -> None:
    before, after = batch_size(slots, _TASK, _MOST), batch_size(slots + more, _TASK, _MOST)
    assert (after.objects, after.bytes, after.merges) >= (before.objects, before.bytes, before.merges)
