"""Plans of merges of records: outputs, waiting objects, and the number of writes per row."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta

import pytest

from prism_assets.domain.records.folding import RecordObject, RecordPart
from prism_assets.domain.records.merge_plan import RecordMergePlan, plan_record_merge
from prism_assets.domain.tables.options import MergePolicy
from prism_assets_tests.builders import utc

POLICY = MergePolicy(target_bytes=1_000, max_objects=50)
NOON = utc("2026-03-01T12:00")


def an_object(number: int, size: int = 100, *, is_settled: bool = True) -> RecordObject:
    at = NOON + timedelta(minutes=number)
    return RecordObject(
        bucket="lake", key=f"k{number}", content_length=size, row_count=size, fingerprint=number,
        min_time=at, max_time=at, date=date(2026, 3, 1), part=RecordPart.VISIBLE, bucket_number=number % 4,
        cohort=number, fold_id=1, is_settled=is_settled, object_id=number,
    )  # fmt: skip


def plan(shown: list[RecordObject], *, is_over: bool = False, most_bytes: int = 1 << 40) -> RecordMergePlan:
    return plan_record_merge(policy=POLICY, is_over=is_over, shown=shown, shrinkage=1.0, most_bytes=most_bytes)


def test_an_open_day_is_cut_where_an_object_is_full_and_half_of_one_stays_behind() -> None:
    assert plan([an_object(number) for number in range(14)]).groups == ()
    found = plan([an_object(number) for number in range(15)])
    assert [len(group) for group in found.groups] == [10]
    assert (found.left_behind, found.left_behind_bytes, found.completes) == (5, 500, False)


def test_a_day_that_is_over_is_merged_in_even_parts() -> None:
    found = plan([an_object(number) for number in range(24)], is_over=True)
    assert [len(group) for group in found.groups] == [12, 12]
    assert (found.left_behind, found.completes, found.backlog) == (0, True, False)


def test_what_is_big_enough_or_alone_is_kept_and_nothing_is_left_to_do() -> None:
    found = plan([an_object(1, 500), an_object(2, 900), an_object(3)], is_over=True)
    assert (found.groups, sorted(item.object_id for item in found.kept)) == ((), [1, 2, 3])
    assert not plan([replace(item, is_merged=True) for item in found.kept], is_over=True).is_due


def test_a_day_with_more_small_objects_than_a_job_takes_goes_on_in_the_next_one() -> None:
    found = plan([an_object(number, 1) for number in range(120)], is_over=True)
    assert [len(group) for group in found.groups] == [50]
    assert (found.backlog, found.completes, found.left_behind) == (True, False, 70)


def test_a_merge_reads_so_many_bytes_and_the_rest_follows() -> None:
    found = plan([an_object(number) for number in range(40)], is_over=True, most_bytes=1_500)
    assert [len(group) for group in found.groups] == [10, 10]
    assert (found.backlog, found.left_behind) == (True, 20)


def test_records_that_settle_after_their_day_join_what_is_left_of_it() -> None:
    rest = replace(an_object(1, 300), is_merged=True, merges=1)
    full = replace(an_object(2, 600), is_merged=True, merges=1)
    (group,) = plan([rest, full, an_object(3)], is_over=True).groups
    assert [item.object_id for item in group] == [1, 3]


def _merged(group: tuple[RecordObject, ...], found: RecordMergePlan, number: int) -> RecordObject:
    size = sum(item.content_length for item in group)
    return replace(
        group[0], object_id=number, content_length=size, row_count=size, merges=1 + max(item.merges for item in group),
        is_merged=found.is_final(size, POLICY),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_every_object_is_merged_at_most_twice_none_is_open_and_a_day_ends_even(seed: int) -> None:
    """A day with objects settling in any order, some open till the end, and merges in between."""
    chance = random.Random(seed)
    count = chance.choice([3, 30, 70, 180])
    coming = [an_object(number, chance.choice([1, 20, 90, 300, 700])) for number in range(1, count + 1)]
    numbers = iter(range(1_000, 100_000))
    shown: list[RecordObject] = []
    total, written = sum(item.row_count for item in coming), Counter[int]()
    while True:
        step = [coming.pop() for _ in range(min(len(coming), chance.randrange(60)))]
        shown = [replace(item, is_settled=True) for item in shown]
        shown += [replace(item, is_settled=chance.random() < 0.7 or not coming) for item in step]
        is_over = not coming and all(item.is_settled for item in shown)
        found = plan(shown, is_over=is_over, most_bytes=chance.choice([1_200, 1 << 40]))
        inputs = [item.object_id for group in found.groups for item in group]
        assert len(inputs) == len(set(inputs))
        assert not set(inputs) & {item.object_id for item in found.kept}
        assert all(item.is_settled and len(group) > 1 for group in found.groups for item in group)
        assert all(item.content_length < POLICY.floor_bytes for group in found.groups for item in group)
        for group in found.groups:
            written.update({item.merges: item.row_count for item in group})
        kept = {item.object_id for item in found.kept}
        new = [_merged(group, found, next(numbers)) for group in found.groups]
        shown = [replace(item, is_merged=item.is_merged or item.object_id in kept) for item in shown]
        shown = [item for item in shown if item.object_id not in inputs] + new
        if is_over and not found.is_due:
            break
    assert sum(item.row_count for item in shown) == total
    assert max((item.merges for item in shown), default=0) <= 2
    assert all(item.is_merged for item in shown)
    assert sum(item.content_length < POLICY.floor_bytes for item in shown) <= 1
