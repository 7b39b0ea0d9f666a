"""Merge plans: examples first, then what holds for every plan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.files.data_file import MergedRange, SmallObject
from prism_assets.domain.merges.plan import MergePlan, plan_merge
from prism_assets.domain.tables.options import MergePolicy
from prism_assets_tests.builders import a_range, a_small_object


def some_objects(sizes: Sequence[int], first: int = 1) -> list[SmallObject]:
    """Small objects of the given sizes, ids from `first` on."""
    return [
        a_small_object(first + index, content_length=size, row_count=1, fingerprint=1)
        for index, size in enumerate(sizes)
    ]


def a_plan(sizes: Sequence[int], *, chain: Sequence[MergedRange] = (), is_open: bool = False, **more: Any) -> MergePlan:
    """A plan with the target 100, where merging neither shrinks nor swells."""
    first = chain[-1].upper_bound + 1 if chain else 1
    arguments: dict[str, Any] = {"policy": MergePolicy(target_bytes=100, max_objects=1_000), "more": False}
    return plan_merge(
        **{**arguments, **more}, is_open=is_open, chain=chain, unmerged=some_objects(sizes, first), shrinkage=1.0
    )


def bounds(plan: MergePlan) -> list[tuple[int, int]]:
    return [(planned.lower_bound, planned.upper_bound) for planned in plan.ranges]


class Case(NamedTuple):
    name: str
    sizes: Sequence[int]
    chain: Sequence[MergedRange]
    is_open: bool
    bounds: Sequence[tuple[int, int]]
    left: int


CASES = [
    Case("nothing is unmerged", [], [], False, [], 0),
    Case("a closed partition is merged however small", [1], [], False, [(0, 1)], 0),
    Case("an open partition waits for a full object", [30, 30], [], True, [], 2),
    Case("an open partition cuts a full object and keeps half a target back", [50, 50, 50], [], True, [(0, 2)], 1),
    Case("an open partition keeps everything while the rest would be too small", [50, 50, 10], [], True, [], 3),
    Case("one huge object is a range while the partition is open", [300, 60], [], True, [(0, 1)], 1),
    Case("one huge object alone is a range, H5", [500], [], False, [(0, 1)], 0),
    Case("one huge object alone is a range of an open partition, H5", [500], [], True, [(0, 1)], 0),
    Case("a closed partition is cut in even parts", [25] * 8, [], False, [(0, 4), (4, 8)], 0),
    Case("one and a half targets become two", [25] * 6, [], False, [(0, 3), (3, 6)], 0),
    Case("a little over the target stays one object", [25] * 5, [], False, [(0, 5)], 0),
    Case("a small last range is extended", [30], [a_range(0, 4, 20)], False, [(0, 5)], 0),
    Case("only the last range is extended", [30], [a_range(0, 4, 10), a_range(4, 6, 20)], False, [(4, 7)], 0),
    Case("a last range of the floor stays as it is", [30], [a_range(0, 4, 50)], False, [(4, 5)], 0),
    Case("an extended range counts toward the target", [30, 30, 30], [a_range(0, 4, 40)], True, [], 3),
    Case("an extended range fills up while open", [60, 60], [a_range(0, 4, 40)], True, [(0, 5)], 1),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_plan_for(case: Case) -> None:
    plan = a_plan(case.sizes, chain=case.chain, is_open=case.is_open)
    assert bounds(plan) == list(case.bounds)
    assert plan.left_behind == case.left
    assert plan.left_behind_bytes == sum(case.sizes[len(case.sizes) - case.left :])


def test_the_plan_says_why_something_stays_behind() -> None:
    assert a_plan([]).reason == "nothing is unmerged"
    assert a_plan([10]).reason == "everything is merged"
    assert a_plan([10], is_open=True).reason == "the day is open, and what is left is kept for its last objects"
    share = "the job has its share of objects; the rest follows in the next one"
    assert {a_plan([60, 60, 20], is_open=is_open, more=True).reason for is_open in (True, False)} == {share}


def test_a_full_job_makes_progress_even_where_nothing_is_full() -> None:
    plan = a_plan([1, 1, 1], is_open=True, policy=MergePolicy(target_bytes=100, max_objects=3))
    assert bounds(plan) == [(0, 3)]


def test_what_does_not_fit_into_one_job_follows_at_once() -> None:
    plan = a_plan([40, 40, 40, 40], more=True, policy=MergePolicy(target_bytes=100, max_objects=4))
    assert bounds(plan) == [(0, 3)]
    assert plan.backlog
    assert not a_plan([40, 40, 40]).backlog


def test_the_extended_range_is_the_first_input_of_the_first_range_only() -> None:
    old = a_range(2, 4, 20)
    plan = a_plan([50] * 6, chain=[a_range(0, 2, 90), old])
    assert [planned.extends for planned in plan.ranges] == [old, *[None] * (len(plan.ranges) - 1)]
    assert plan.ranges[0].row_count == len(plan.ranges[0].objects) + old.row_count
    assert plan.ranges[0].input_bytes == 50 * len(plan.ranges[0].objects) + 20


def test_the_shrinkage_decides_how_much_goes_into_an_object() -> None:
    plan = plan_merge(
        policy=MergePolicy(target_bytes=100),
        is_open=False,
        chain=[],
        unmerged=some_objects([50] * 8),
        more=False,
        shrinkage=0.5,
    )
    assert bounds(plan) == [(0, 4), (4, 8)]


class Situation(NamedTuple):
    """Everything that goes into a plan."""

    policy: MergePolicy
    is_open: bool
    chain: list[MergedRange]
    unmerged: list[SmallObject]
    more: bool
    shrinkage: float


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Situations as PostgreSQL can hold them: ids with gaps, chains of any sizes, objects from tiny to huge."""
    target = draw(st.integers(2, 1_000))
    most = draw(st.integers(1, 40))
    steps = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3 * target)), max_size=4))
    uppers = list(itertools.accumulate((step for step, _ in steps), initial=0))
    chain = [
        a_range(lower, upper, size) for (lower, upper), (_, size) in zip(itertools.pairwise(uppers), steps, strict=True)
    ]
    more = draw(st.booleans())
    sizes = draw(st.lists(st.integers(1, 3 * target), min_size=most if more else 0, max_size=most))
    ids = itertools.accumulate((draw(st.integers(1, 3)) for _ in sizes), initial=uppers[-1])
    next(ids)
    unmerged = [
        a_small_object(object_id, content_length=size, row_count=2, fingerprint=1)
        for object_id, size in zip(ids, sizes, strict=True)
    ]
    policy = MergePolicy(target_bytes=target, max_objects=most)
    return Situation(policy, draw(st.booleans()), chain, unmerged, more, draw(st.floats(0.05, 2)))


def plan_of(situation: Situation) -> MergePlan:
    return plan_merge(**situation._asdict())


def expected_size(situation: Situation, plan: MergePlan, index: int) -> float:
    """Bytes of a planned range as the planner foresees them."""
    planned = plan.ranges[index]
    fresh = sum(item.content_length for item in planned.objects) * situation.shrinkage
    return fresh + (planned.extends.content_length if planned.extends else 0)


@given(situations())
def test_the_ranges_are_one_gapless_chain_from_where_the_old_one_ends(situation: Situation) -> None:
    plan = plan_of(situation)
    end = situation.chain[-1].upper_bound if situation.chain else 0
    assert plan.chain_end == end
    if plan.ranges:
        first = plan.ranges[0]
        assert first.lower_bound == (first.extends.lower_bound if first.extends else end)
    for before, after in itertools.pairwise(plan.ranges):
        assert after.lower_bound == before.upper_bound
    for planned in plan.ranges:
        assert planned.objects
        assert planned.upper_bound == planned.objects[-1].object_id


@given(situations())
def test_every_object_is_in_exactly_one_range_or_left_at_the_end(situation: Situation) -> None:
    plan = plan_of(situation)
    taken = [item for planned in plan.ranges for item in planned.objects]
    assert taken == situation.unmerged[: len(taken)]
    left = situation.unmerged[len(taken) :]
    assert plan.left_behind == len(left)
    assert plan.left_behind_bytes == sum(item.content_length for item in left)


@given(situations())
def test_only_a_last_range_below_the_floor_is_extended(situation: Situation) -> None:
    plan = plan_of(situation)
    for index, planned in enumerate(plan.ranges):
        if index == 0 and situation.chain and situation.chain[-1].content_length < situation.policy.floor_bytes:
            assert planned.extends == situation.chain[-1]
        else:
            assert planned.extends is None


@given(situations())
def test_a_closed_partition_without_more_leaves_nothing_behind(situation: Situation) -> None:
    if not situation.is_open and not situation.more:
        plan = plan_of(situation)
        assert plan.left_behind == 0
        assert not plan.backlog


@given(situations())
def test_a_job_that_is_full_or_has_more_behind_it_always_makes_progress(situation: Situation) -> None:
    if situation.unmerged and (situation.more or len(situation.unmerged) >= situation.policy.max_objects):
        plan = plan_of(situation)
        assert plan.ranges
        assert plan.backlog == situation.more


@given(situations())
def test_an_open_partition_cuts_only_full_ranges(situation: Situation) -> None:
    plan = plan_of(situation)
    full_job = situation.more or len(situation.unmerged) >= situation.policy.max_objects
    if situation.is_open and not (full_job and len(plan.ranges) == 1):
        for index in range(len(plan.ranges)):
            assert expected_size(situation, plan, index) >= situation.policy.target_bytes * 0.999


@given(situations())
def test_an_open_partition_holds_back_enough_for_an_object_of_its_own(situation: Situation) -> None:
    """Unless what is there fills two targets, as after a huge object."""
    plan = plan_of(situation)
    full_job = situation.more or len(situation.unmerged) >= situation.policy.max_objects
    if situation.is_open and plan.ranges and not full_job:
        held = plan.left_behind_bytes * situation.shrinkage
        last = expected_size(situation, plan, len(plan.ranges) - 1)
        assert held >= situation.policy.floor_bytes * 0.999 or last >= 2 * situation.policy.target_bytes * 0.999


@given(st.lists(st.integers(1, 50), min_size=1, max_size=300), st.integers(0, 499), st.floats(0.1, 1))
def test_a_closed_partition_of_small_objects_is_cut_between_the_floor_and_one_and_a_half_targets(
    sizes: list[int], tail: int, shrinkage: float
) -> None:
    """To within one object, as objects are not divided."""
    policy = MergePolicy(target_bytes=1_000)
    chain = [a_range(0, 3, tail)] if tail else []
    situation = Situation(policy, False, chain, some_objects(sizes, 4), False, shrinkage)
    plan = plan_of(situation)
    planned = [expected_size(situation, plan, index) for index in range(len(plan.ranges))]
    if sum(planned) >= policy.floor_bytes:
        assert min(planned) >= policy.floor_bytes - max(sizes)
        assert max(planned) <= 1.5 * policy.target_bytes + max(sizes)


@given(situations())
def test_executing_plans_ends_with_everything_merged(situation: Situation) -> None:
    """Job after job after the close: each takes at most its share, and nothing is left in the end."""
    chain, unmerged = list(situation.chain), list(situation.unmerged)
    for _ in range(len(unmerged) + 1):
        share = unmerged[: situation.policy.max_objects]
        plan = plan_merge(
            policy=situation.policy,
            is_open=False,
            chain=chain,
            unmerged=share,
            more=len(unmerged) > len(share),
            shrinkage=situation.shrinkage,
        )
        for planned in plan.ranges:
            if planned.extends:
                chain.remove(planned.extends)
            chain.append(a_range(planned.lower_bound, planned.upper_bound, max(1, planned.input_bytes)))
            unmerged = unmerged[len(planned.objects) :]
    assert unmerged == []
    assert [r.lower_bound for r in chain[1:]] == [r.upper_bound for r in chain[:-1]]


def test_copies_are_made_beside_what_is_merged_but_of_what_it_extends() -> None:
    chain = [a_range(0, 5, content_length=100), a_range(5, 9, content_length=10)]
    plan = a_plan([30], chain=chain, uncopied=chain)
    assert [(planned.upper_bound, planned.is_copy) for planned in plan.ranges] == [(10, False), (5, True)]
    assert a_plan([30], chain=chain, uncopied=chain, attempts=1).ranges == plan.ranges[:1], "not of what failed"
    waiting = a_plan([30], chain=chain, is_open=True, uncopied=chain)
    assert [(planned.upper_bound, planned.is_copy) for planned in waiting.ranges] == [(5, True), (9, True)]
    (first,) = a_plan([], chain=chain, uncopied=chain, attempts=1).ranges
    assert (first.upper_bound, first.is_copy, first.is_rewritten) == (9, True, False)
    old = a_plan([], chain=chain, uncopied=chain, rewritten_below=1)
    assert [(planned.is_copy, planned.is_rewritten) for planned in old.ranges] == [(False, True)] * 2, "first of all"
