"""Shares of live workers: each wanted table has a worker, whatever the others want."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.live_shares import share_out

TABLES = range(8)
WISHES = st.dictionaries(st.integers(1, 5), st.frozensets(st.sampled_from(TABLES)), min_size=1)
HELD = st.dictionaries(st.sampled_from(TABLES), st.integers(1, 6))


def after_beats(wanted: dict[int, frozenset[int]], held: dict[int, int], rounds: int) -> dict[int, int]:
    """The holders after beats in turn: each gives tables of others back, and takes free ones of its own."""
    held = {table: worker for table, worker in held.items() if worker in wanted}
    for _ in range(rounds):
        for worker in wanted:
            plan = share_out(wanted, held)
            held = {table: holder for table, holder in held.items() if holder != worker or plan.get(table) == worker}
            held |= {table: worker for table, owner in plan.items() if owner == worker and table not in held}
    return held


@given(WISHES, HELD)
def test_each_wanted_table_goes_to_a_worker_that_wants_it(
    wanted: dict[int, frozenset[int]], held: dict[int, int]
) -> None:
    owners = share_out(wanted, held)
    assert owners.keys() == frozenset[int]().union(*wanted.values())
    assert all(table in wanted[worker] for table, worker in owners.items())


@given(WISHES, HELD)
def test_workers_agree_after_some_beats(wanted: dict[int, frozenset[int]], held: dict[int, int]) -> None:
    settled = after_beats(wanted, held, rounds=2 * len(TABLES) + 2)
    assert settled.keys() == frozenset[int]().union(*wanted.values())
    assert share_out(wanted, settled) == settled


@given(st.sets(st.integers(1, 5), min_size=1), HELD)
def test_workers_with_equal_wishes_get_even_shares(workers: set[int], held: dict[int, int]) -> None:
    load = Counter(share_out({worker: frozenset(TABLES) for worker in workers}, held).values())
    assert max(load.values()) <= -(-len(TABLES) // len(workers))


def test_disjoint_wishes_share_nothing() -> None:
    assert share_out({1: {1, 2, 3}, 2: {4}}, {}) == {1: 1, 2: 1, 3: 1, 4: 2}


def test_tables_of_one_worker_are_not_left_for_tables_of_all() -> None:
    assert share_out({1: {1, 2, 3}, 2: {2, 3}}, {2: 1, 3: 1}) == {1: 1, 2: 1, 3: 2}
