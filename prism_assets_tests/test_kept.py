"""A process makes an engine or a client once for each address."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prism_assets.kept import Kept


def test_threads_share_one_value_for_each_key_until_all_are_closed() -> None:
    closed: list[list[str]] = []
    kept: Kept[str, list[str]] = Kept(closed.append)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: kept.get("ab"[number % 2], list), range(64)))
    assert {id(item) for item in made} == {id(made[0]), id(made[1])}
    kept.close()
    assert sorted(map(id, closed)) == sorted([id(made[0]), id(made[1])])
    assert kept.get("a", lambda: ["new"]) == ["new"]


def test_a_value_that_is_not_to_be_kept_is_made_again() -> None:
    kept: Kept[str, list[int]] = Kept()
    first = kept.get("a", list, keeps=bool)
    assert kept.get("a", list, keeps=bool) is not first
    full = kept.get("a", lambda: [1], keeps=bool)
    assert kept.get("a", list, keeps=bool) is full
