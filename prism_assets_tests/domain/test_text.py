"""How messages list what is too much to be told in full."""

from __future__ import annotations

from prism_assets.domain.text import listed


def test_what_is_few_is_told_in_full() -> None:
    assert [listed([], 2), listed(["a"], 2), listed(["a", "b"], 2)] == ["", "a", "a, b"]


def test_of_many_the_first_are_told_and_how_many_more_there_are() -> None:
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
