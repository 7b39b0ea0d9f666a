"""Explores every order of stream, mark, close, merge, switch and publish, also without each rule, which must give a
fault.

A failure shows the shortest path to the fault and the number of states, also shown by `-rP`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from prism_assets_tests.model.explore import Exploration, explore
from prism_assets_tests.model.states import EXTEND_LATER, Rules, Size
from prism_assets_tests.reliability import Figures

STREAM = Size(objects=2, workers=2, mergers=0, runs=1, batches=3, late_calls=0, publications_at_once=True)
"""Two workers with dying and waking batches, against the close."""
MERGE = Size(objects=2, workers=1, mergers=2, runs=1, batches=2, late_calls=0, publications_at_once=True)
"""Two workers of merge jobs that lose their leases, against late objects, the close and the switch."""
EXTEND = replace(MERGE, policy=EXTEND_LATER)
"""The same with extended ranges."""
CATALOG = Size(objects=1, workers=1, mergers=0, runs=2, batches=1, late_calls=1, calls_sent_twice=True)
"""Two catalog runs that lose their locks, and calls that take effect late or never."""
SWITCH = replace(CATALOG, workers=0, begins_closed=True)
"""The same at the switch, without a later publication to repair a fault."""
ALL_STAGES = replace(STREAM, mergers=1, batches=2)
LATE_OBJECTS = replace(CATALOG, objects=2, batches=2, calls_sent_twice=False)

SIZES = {"stream": STREAM, "merge": MERGE, "extend": EXTEND, "catalog": CATALOG, "switch": SWITCH}
LONG = {
    "stream beside merge": replace(STREAM, mergers=1),
    "three objects": replace(STREAM, objects=3, mergers=1),
    "each call of a publication beside two merges": replace(MERGE, publications_at_once=False),
    "late objects beside two runs": LATE_OBJECTS,
    "merge beside two runs": replace(CATALOG, mergers=1),
    "two calls of long ago": replace(CATALOG, late_calls=2),
    "two calls of long ago at the switch": replace(SWITCH, late_calls=2),
}
STEPS = {
    "stream": {"stream.start", "convert.put", "stream.commit", "stream.reclaim_expired"},
    "merge": {"merge.claim", "merge.plan", "merge.put", "merge.commit", "merge.reclaim_expired"},
    "life": {"catalog.lock", "catalog.mark", "catalog.close"},
    "publish": {
        "catalog.lose_lock",
        "catalog.begin",
        "catalog.manifest",
        "catalog.check",
        "catalog.publish",
        "catalog.record",
    }
    | {"catalog.settle", "glue.land_late", "glue.lose"},
}


@cache
def explored(rules: Rules, size: Size) -> Exploration:
    found = explore(rules, size)
    print(found)
    return found


def note(figures: Figures, found: Exploration) -> None:
    figures.note("Exhaustive model", [found.fault] if found.fault else [], configurations=1, states=found.states)


@pytest.mark.parametrize("name", SIZES)
def test_in_no_order_is_a_row_lost_doubled_or_hidden_and_everything_goes_on_by_itself(
    name: str, figures: Figures
) -> None:
    found = explored(Rules(), SIZES[name])
    note(figures, found)
    assert found.fault is None, str(found)
    assert found.states > 1_000


@pytest.mark.parametrize("name", LONG)
def test_nor_in_any_order_of_more(name: str, long: bool, figures: Figures) -> None:
    if not long:
        pytest.skip("hundreds of thousands of states: with --long")
    found = explored(Rules(), LONG[name])
    note(figures, found)
    assert found.fault is None, str(found)
    assert found.states > 40_000


@pytest.mark.parametrize(
    ("size", "parts"),
    [(STREAM, ("stream", "life")), (MERGE, ("stream", "merge", "life")), (CATALOG, ("stream", "life", "publish"))],
)
def test_every_step_of_the_protocol_is_taken(size: Size, parts: tuple[str, ...]) -> None:
    wanted = set[str]().union(*(STEPS[part] for part in parts))
    assert (
        wanted - explored(Rules(), size).kinds - ({"stream.reclaim_expired"} if size.batches == 1 else set()) == set()
    )


@pytest.mark.parametrize(
    ("rule", "size", "fault"),
    [
        pytest.param("ids_under_lock", ALL_STAGES, "I10", id="h3: ids are given before the lock of the commit"),
        pytest.param("tier_of_first_claim", STREAM, "H2", id="h2: the tier comes from a snapshot, without a mark"),
        pytest.param("epoch_lock", STREAM, "H2", id="h2: a day is marked while a batch starts"),
        pytest.param("claim_locks_rows", MERGE, "H1", id="h1: a job is claimed without its row lock"),
        pytest.param("lease_fences", ALL_STAGES, "I1", id="the commit of a batch does not look at its lease"),
        pytest.param("lease_fences", MERGE, "H1", id="the commit of a merge does not look at its lease"),
        pytest.param("one_run_a_table", LATE_OBJECTS, "I3", id="h7: two catalog runs at once"),
        pytest.param("notes_of_others_stay", CATALOG, "I10", id="a run takes back the notes of others"),
        pytest.param("sensors_read_notes", CATALOG, "I10", id="no sensor looks at notes"),
        pytest.param("records_are_fenced", SWITCH, "I10", id="a run that lost its lock records what it published"),
        pytest.param("read_back", CATALOG, "I1", id="a publication is recorded without reading it back"),
        pytest.param("doubt_stays_noted", CATALOG, "I10", id="a call that was sent twice leaves no note"),
    ],
)
def test_the_exploration_finds_what_goes_wrong_without(rule: str, size: Size, fault: str, figures: Figures) -> None:
    without: dict[str, Any] = {rule: False}
    found = explored(Rules(**without), size)
    figures.note("Null controls", [found.fault or ""], control=f"`{rule}` (exhaustive model, {fault})")
    assert found.fault is not None
    assert found.fault.startswith(f"{fault}:"), str(found)


def test_a_merge_that_loses_a_row_is_held_up_by_the_certificate_and_hidden_without() -> None:
    size = replace(ALL_STAGES, merges_lose_a_row=True)
    held_up = explored(Rules(), size)
    assert held_up.fault == "I10: two runs after its day the partition is not switched"
    hidden = explored(Rules(switch_needs_evidence=False), size)
    assert hidden.fault is not None
    assert hidden.fault.startswith("I1:"), str(hidden)
