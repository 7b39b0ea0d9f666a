"""Dividing tasks into the shares of single Spark tasks, and what a share carries."""

from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.work.write import WriteTask
from prism_assets.engine.packing import divide, least_shares
from prism_assets.engine.worker import encode_share
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets_tests.domain.tables.test_definition import in_zone

sizes = st.lists(st.integers(0, 1_000), max_size=50)


def divided(tasks: list[int], share: int, least: int) -> list[list[int]]:
    return divide(tasks, lambda task: task, share, least)


def test_nothing_gives_no_share() -> None:
    assert divided([], 10, 4) == []


def test_a_few_small_tasks_are_spread() -> None:
    assert sorted(divided([1, 1, 1], 1_000, 4)) == [[1], [1], [1]]


def test_the_biggest_task_is_alone_where_that_evens_out() -> None:
    assert sorted(map(sorted, divided([90, 30, 30, 30], 100, 1))) == [[30, 30, 30], [90]]


@given(sizes, st.integers(1, 2_000), st.integers(1, 8))
def test_every_task_is_in_one_share(tasks: list[int], share: int, least: int) -> None:
    shares = divided(tasks, share, least)
    assert sorted(task for part in shares for task in part) == sorted(tasks)
    assert all(shares)


@given(sizes, st.integers(1, 2_000), st.integers(1, 8))
def test_there_are_as_many_shares_as_bytes_and_cores_ask_for(tasks: list[int], share: int, least: int) -> None:
    wanted = min(len(tasks), max(least, -(-sum(tasks) // share)))
    assert len(divided(tasks, share, least)) == wanted


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=50), st.integers(1, 8))
def test_shares_differ_by_one_task_at_most(tasks: list[int], least: int) -> None:
    """In weight, as each task goes to the lightest share."""
    weights = [sum(part) + len(part) for part in divided(tasks, 10_000_000, least)]
    assert max(weights) - min(weights) <= max(tasks) + 1


def test_a_job_has_a_share_for_each_slot_where_its_shares_are_worth_a_task() -> None:
    large, small = 200 * (4 << 20), 200 * 10_000
    assert least_shares(200, large, 16 << 20, slots=100) == 100
    assert least_shares(200, small, 16 << 20, slots=100) == 25
    assert {least_shares(1, 1, 16 << 20, slots) for slots in (1, 2, 100)} == {4}


@given(st.integers(0, 1 << 40), st.integers(1, 500))
def test_more_shares_than_slots_make_whole_rounds(size: int, slots: int) -> None:
    shares, by_bytes = least_shares(10**9, size, 16 << 20, slots), -(-size // (16 << 20))
    assert shares >= by_bytes
    assert shares <= max(4, slots) or (shares % slots == 0 and shares - by_bytes < slots)


def dealt_one_by_one(tasks: list[int], count: int) -> list[list[int]]:
    """The rule, by a look at every share for every task."""
    shares: list[list[int]] = [[] for _ in range(count)]
    for task in sorted(tasks, reverse=True):
        lightest = min(range(count), key=lambda index: (sum(shares[index]) + len(shares[index]), len(shares[index])))
        shares[lightest].append(task)
    return shares


@given(st.lists(st.integers(0, 20), min_size=1, max_size=50), st.integers(1, 100), st.integers(1, 8))
def test_each_task_goes_to_the_lightest_share_the_first_of_equals(tasks: list[int], share: int, least: int) -> None:
    shares = divided(tasks, share, least)
    assert shares == dealt_one_by_one(tasks, len(shares))


def test_tens_of_thousands_of_tasks_are_divided_at_once() -> None:
    begun = time.process_time()
    shares = divided(list(range(1, 20_001)), 20_000, 4)
    assert len(shares) > 10_000
    assert time.process_time() - begun < 5


def test_a_share_carries_the_definitions_it_needs_and_no_others() -> None:
    table = in_zone("UTC")
    task = WriteTask(
        number=1,
        inputs=(),
        output_key="k",
        table_id=1,
        definition_version=2,
    )
    lake = Lake("lake", "", StoreConfig())
    share = json.loads(encode_share("write", [task], {(1, 1): table, (1, 2): table, (2, 1): table}, lake))
    assert [entry[:2] for entry in share["definitions"]] == [[1, 2]]
    assert Lake.from_json(share["lake"]) == lake
