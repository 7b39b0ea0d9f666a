"""The states of a partition, the conditions of a switch, and the intended content of the catalog."""

from __future__ import annotations

import itertools
from datetime import date
from typing import Any

import pytest

from prism_assets.domain.days.partitions import (
    ObjectTotals,
    Partition,
    PartitionState,
    Publication,
    SwitchEvidence,
    current_publication,
    least_shown,
    needed_above,
    switch_obstacle,
    wanted_publication,
)


def a_partition(**more: Any) -> Partition:
    """Returns a new partition, except for the given fields."""
    facts: dict[str, Any] = {
        "partition_id": 1,
        "table_id": 1,
        "date": date(2026, 3, 1),
        "current_version": -1,
        "desired_version": 0,
        "last_live_object_id": None,
        "switched": False,
        "closing_batch_id": None,
        "published_object_id": None,
        "last_object_id": 9,
    }
    return Partition(**{**facts, **more})


LIVE: dict[str, Any] = {"current_version": 0, "published_object_id": 0}
CLOSING = {**LIVE, "closing_batch_id": 4}
CLOSED = {**CLOSING, "last_live_object_id": 8}
SWITCHED = {**CLOSED, "switched": True, "desired_version": 9}


def a_total(rows: int = 10, fingerprint: int = 77, objects: int = 2) -> ObjectTotals:
    return ObjectTotals(objects=objects, rows=rows, fingerprint=fingerprint)


def some_evidence(**more: Any) -> SwitchEvidence:
    """Returns evidence that allows a switch, except for the given fields."""
    facts = {"upper_bound": 9, "uncovered_live": 0, "live": a_total(), "covered": a_total(), "ranges": a_total()}
    return SwitchEvidence(**{**facts, **more})


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, PartitionState.NEW),
        (LIVE, PartitionState.LIVE),
        (CLOSING, PartitionState.CLOSING),
        ({"closing_batch_id": 4}, PartitionState.CLOSING),
        (CLOSED, PartitionState.CLOSED),
        ({"closing_batch_id": 0, "last_live_object_id": 0}, PartitionState.CLOSED),
        (SWITCHED, PartitionState.SWITCHED),
    ],
)
def test_the_columns_say_the_state(facts: dict[str, Any], state: PartitionState) -> None:
    assert a_partition(**facts).state is state


@pytest.mark.parametrize(("facts", "is_open"), [({}, True), (LIVE, True), (CLOSING, True), (CLOSED, False)])
def test_a_partition_is_open_until_it_is_closed(facts: dict[str, Any], is_open: bool) -> None:
    assert a_partition(**facts).is_open is is_open


@pytest.mark.parametrize(
    ("facts", "state"), [({}, "new"), (LIVE, "live"), (CLOSING, "closing"), (SWITCHED, "switched")]
)
def test_only_a_closed_partition_switches(facts: dict[str, Any], state: str) -> None:
    assert switch_obstacle(a_partition(**facts), some_evidence()) == f"it is {state}, not closed"


def test_a_closed_partition_with_equal_sums_switches() -> None:
    assert switch_obstacle(a_partition(**CLOSED), some_evidence()) is None


def test_a_partition_without_ranges_does_not_switch() -> None:
    evidence = some_evidence(upper_bound=None)
    assert switch_obstacle(a_partition(**CLOSED), evidence) == "it was never merged"


def test_a_live_object_above_the_ranges_holds_up_the_switch() -> None:
    assert (
        switch_obstacle(a_partition(**CLOSED), some_evidence(uncovered_live=2)) == "2 live objects are not merged yet"
    )


@pytest.mark.parametrize(
    ("shown", "least"),
    [
        ([], None),
        ([Publication(5, 9, 1)], Publication(5, 9, 1)),
        ([Publication(5, 9, 1), None], None),
        ([Publication(5, 9, 1), Publication(0, 0)], Publication(0, 0)),
        ([Publication(9, 9), Publication(5, 12, 1)], Publication(5, 9)),
    ],
)
def test_what_all_readers_see_is_the_least_of_what_each_catalog_shows(
    shown: list[Publication | None], least: Publication | None
) -> None:
    assert least_shown(shown) == least


@pytest.mark.parametrize("ranges", [a_total(rows=9), a_total(rows=11), a_total(fingerprint=78)])
def test_sums_that_differ_hold_up_the_switch(ranges: ObjectTotals) -> None:
    refusal = switch_obstacle(a_partition(**CLOSED), some_evidence(ranges=ranges))
    assert refusal is not None
    assert f"hold {ranges.rows} rows and not the same as the 10 rows" in refusal


def test_the_number_of_objects_is_no_evidence() -> None:
    assert switch_obstacle(a_partition(**CLOSED), some_evidence(ranges=a_total(objects=1))) is None


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({}, Publication(0, 0)),
        (LIVE, Publication(0, 0)),
        (CLOSING, Publication(0, 0)),
        (CLOSED, Publication(0, 9)),
        (SWITCHED, Publication(9, 9)),
        ({**SWITCHED, "last_object_id": 12}, Publication(9, 12)),
        ({**SWITCHED, "last_object_id": 3}, Publication(9, 9)),
    ],
)
def test_the_catalog_should_show_what_the_state_asks_for(facts: dict[str, Any], wanted: Publication) -> None:
    assert wanted_publication(a_partition(**facts)) == wanted


def test_only_an_open_partition_is_read_by_listing() -> None:
    assert wanted_publication(a_partition(**LIVE)).is_live_prefix
    assert not wanted_publication(a_partition(**CLOSED)).is_live_prefix
    assert not wanted_publication(a_partition(**SWITCHED)).is_live_prefix


def test_a_new_partition_is_not_in_the_catalog() -> None:
    assert current_publication(a_partition()) is None
    assert current_publication(a_partition(current_version=0)) == Publication(0, 0)
    assert current_publication(a_partition(current_version=5, published_object_id=8)) == Publication(5, 8)


def test_publications_only_ever_grow_along_the_life_of_a_partition() -> None:
    life = [{}, LIVE, CLOSING, CLOSED, {**CLOSED, "desired_version": 9}, SWITCHED, {**SWITCHED, "last_object_id": 12}]
    wanted = [wanted_publication(a_partition(**facts)) for facts in life]
    steps = [(publication.version, publication.published_object_id) for publication in wanted]
    assert all(before[0] <= after[0] and before[1] <= after[1] for before, after in itertools.pairwise(steps))


def test_what_is_wanted_and_shown_differs_after_a_repair_set_lengths_anew() -> None:
    shown = a_partition(**{**CLOSED, "current_version": 0, "published_object_id": 9, "revision": 1})
    assert wanted_publication(shown) == Publication(0, 9, 1)
    assert current_publication(shown) == Publication(0, 9, 0)


@pytest.mark.parametrize(
    ("facts", "above"),
    [
        ({}, 0),
        ({**LIVE, "desired_version": 5}, 0),
        ({**CLOSED, "desired_version": 9}, 0),
        ({**SWITCHED, "current_version": 0}, 0),
        ({**SWITCHED, "current_version": 5}, 5),
        ({**SWITCHED, "current_version": 9}, 9),
    ],
)
def test_small_objects_are_needed_until_readers_have_the_ranges(facts: dict[str, Any], above: int) -> None:
    assert needed_above(a_partition(**facts)) == above
