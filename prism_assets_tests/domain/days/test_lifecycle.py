"""The next run's steps for a partition, and the facts each step asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from prism_assets.domain.days.lifecycle import (
    Close,
    Expire,
    MarkClosing,
    Publish,
    Step,
    Switch,
    WaitForDayEnd,
    WaitForMerge,
    WaitForObjects,
    WaitToExpire,
    Withdraw,
    next_steps,
    work_for_a_run,
)
from prism_assets.domain.days.partitions import ObjectTotals, Partition, Publication, SwitchEvidence
from prism_assets_tests.builders import utc
from prism_assets_tests.domain.days.test_partitions import a_partition

ENDS = utc("2026-03-02T00:00")
BEFORE, AFTER = ENDS - timedelta(seconds=1), ENDS
NEW: dict[str, Any] = {"last_object_id": 9}
PUBLISHED: dict[str, Any] = {"current_version": 0, "published_object_id": 0, "last_object_id": 9}
CLOSED: dict[str, Any] = {**PUBLISHED, "closing_batch_id": 4, "last_live_object_id": 9, "published_object_id": 9}
HALF_MERGED: dict[str, Any] = {**CLOSED, "desired_version": 6}
MERGED: dict[str, Any] = {**CLOSED, "desired_version": 9}
SWITCHED: dict[str, Any] = {**MERGED, "switched": True, "current_version": 9}
NINE = ObjectTotals(objects=9, rows=90, fingerprint=7)


@dataclass
class KnownFacts:
    """Facts of a test; `asked` has those with a cost."""

    unfinished: int = 0
    unfolded: int = 0
    history: int | None = None
    unmerged: int | None = 3
    ranges: ObjectTotals = NINE
    too_old: datetime | None = None
    asked: list[str] = field(default_factory=list)

    def closes_from(self, partition: Partition) -> datetime:
        assert partition.date == date(2026, 3, 1)
        return ENDS

    def unfinished_objects(self, partition: Partition) -> int:
        self.asked.append("unfinished")
        return self.unfinished

    def unfinished_history(self, partition: Partition) -> int | None:
        return self.history

    def expires(self, partition: Partition) -> datetime | None:
        return self.too_old

    def not_ahead(self, now: datetime) -> datetime:
        return now

    def unfinished_before_expiry(self, partition: Partition) -> int:
        self.asked.append("unfinished before expiry")
        return self.unfinished

    def unfolded_objects(self, partition: Partition) -> int:
        return self.unfolded

    def unmerged_live(self, partition: Partition) -> int | None:
        self.asked.append("unmerged")
        return self.unmerged

    def switch_evidence(self, partition: Partition) -> SwitchEvidence:
        self.asked.append("evidence")
        return SwitchEvidence(upper_bound=9, uncovered_live=0, live=NINE, covered=NINE, ranges=self.ranges)


def live_prefix(before: Publication | None = None) -> Publish:
    return Publish(before=before, wanted=Publication(0, 0))


SMALL, BIG = Publication(0, 9), Publication(9, 9)


@pytest.mark.parametrize(
    ("facts", "now", "steps", "asked"),
    [
        (NEW, BEFORE, (WaitForDayEnd(ends=ENDS), live_prefix()), []),
        (PUBLISHED, BEFORE, (WaitForDayEnd(ends=ENDS),), []),
        (
            PUBLISHED,
            AFTER,
            (MarkClosing(), Close(follows=True), Publish(before=Publication(0, 0), wanted=SMALL, follows=True)),
            ["unfinished"],
        ),
        (
            {**PUBLISHED, "closing_batch_id": 4},
            AFTER,
            (Close(), Publish(before=Publication(0, 0), wanted=SMALL, follows=True)),
            ["unfinished"],
        ),
        ({**CLOSED, "published_object_id": 0}, AFTER, (
            WaitForMerge(reason="it was never merged"), Publish(before=Publication(0, 0), wanted=SMALL),
        ), []),
        (NEW, AFTER, (MarkClosing(), Close(follows=True), Publish(before=None, wanted=SMALL)), ["unfinished"]),
        (CLOSED, AFTER, (WaitForMerge(reason="it was never merged"),), []),
        (HALF_MERGED, AFTER, (WaitForMerge(reason="3 live objects are not merged yet"),), ["unmerged"]),
        (MERGED, AFTER, (Switch(), Publish(before=SMALL, wanted=BIG, follows=True)), ["evidence"]),
        ({**MERGED, "switched": True}, AFTER, (Publish(before=SMALL, wanted=BIG),), []),
        (SWITCHED, AFTER, (), []),
        ({**SWITCHED, "last_object_id": 12}, AFTER, (Publish(before=BIG, wanted=Publication(9, 12)),), []),
    ],
)  # fmt: skip
def test_the_steps_of_the_next_run_and_the_facts_they_ask_for(
    facts: dict[str, Any], now: datetime, steps: tuple[Step, ...], asked: list[str]
) -> None:
    known = KnownFacts()
    assert next_steps(a_partition(**facts), known, now) == steps
    assert known.asked == asked


def test_one_live_object_is_told_as_one() -> None:
    steps = next_steps(a_partition(**HALF_MERGED), KnownFacts(unmerged=1), AFTER)
    assert steps == (WaitForMerge(reason="1 live object is not merged yet"),)


def test_objects_of_before_the_mark_keep_a_day_open() -> None:
    facts = KnownFacts(unfinished=2)
    unmarked, marked = a_partition(**PUBLISHED), a_partition(**PUBLISHED, closing_batch_id=4)
    assert next_steps(unmarked, facts, AFTER) == (MarkClosing(), WaitForObjects(objects=2, follows=True))
    assert next_steps(marked, facts, AFTER) == (WaitForObjects(objects=2),)


def test_ranges_that_hold_other_rows_are_never_switched_to() -> None:
    facts = KnownFacts(ranges=ObjectTotals(objects=1, rows=89, fingerprint=7))
    (wait,) = next_steps(a_partition(**MERGED), facts, AFTER)
    assert isinstance(wait, WaitForMerge)
    assert wait.is_contradiction
    assert "89 rows and not the same" in wait.reason


@pytest.mark.parametrize(
    ("facts", "now", "action"),
    [
        (PUBLISHED, BEFORE, None),
        (NEW, BEFORE, "publish"),
        (PUBLISHED, AFTER, "close"),
        (CLOSED, AFTER, None),
        ({**CLOSED, "published_object_id": 0}, AFTER, "publish"),
        (MERGED, AFTER, "switch"),
        ({**MERGED, "published_object_id": 0}, AFTER, "publish"),
        (SWITCHED, AFTER, None),
    ],
)
def test_sensors_ask_for_a_run_for_what_it_would_do_and_not_for_what_waits(
    facts: dict[str, Any], now: datetime, action: str | None
) -> None:
    move = work_for_a_run(next_steps(a_partition(**facts), KnownFacts(), now))
    assert (move and move.action) == action


EXPIRED: dict[str, Any] = {**SWITCHED, "expired": True}


@pytest.mark.parametrize(
    ("stored", "unfinished", "steps", "asked"),
    [
        (SWITCHED, 0, (Expire(), Withdraw(follows=True)), ["unfinished before expiry"]),
        ({**SWITCHED, "current_version": -1}, 0, (Expire(),), ["unfinished before expiry"]),
        (
            SWITCHED,
            2,
            (WaitToExpire(reason="2 staging objects that may have rows of it are not converted yet"),),
            ["unfinished before expiry"],
        ),
        (
            {**SWITCHED, "last_object_id": 12},
            0,
            (
                WaitToExpire(reason="objects that came late are not merged yet"),
                Publish(before=Publication(9, 9), wanted=Publication(9, 12)),
            ),
            [],
        ),
        (MERGED, 0, (Switch(), Publish(before=Publication(0, 9), wanted=BIG, follows=True)), ["evidence"]),
        (EXPIRED, 0, (Withdraw(),), []),
        ({**EXPIRED, "current_version": -1}, 0, (), []),
    ],
    ids=["at rest", "never shown", "unfinished", "late rows", "not switched", "expired", "withdrawn"],
)
def test_a_day_that_is_too_old_ends_when_nothing_more_can_come(
    stored: dict[str, Any], unfinished: int, steps: tuple[Step, ...], asked: list[str]
) -> None:
    facts = KnownFacts(too_old=AFTER, unfinished=unfinished)
    assert next_steps(a_partition(**{"published_object_id": 9, **stored}), facts, AFTER) == steps
    assert facts.asked == asked


def test_a_day_of_changes_ends_when_all_of_them_are_folded() -> None:
    day = a_partition(**{**SWITCHED, "published_object_id": 9})
    (wait,) = next_steps(day, KnownFacts(too_old=AFTER, unfolded=2), AFTER)
    assert str(wait) == "not expire: 2 objects of it are still read by folds"
    assert next_steps(day, KnownFacts(too_old=AFTER), AFTER)[0] == Expire()


def test_a_day_that_is_not_too_old_yet_stays() -> None:
    assert next_steps(a_partition(**{**SWITCHED, "published_object_id": 9}), KnownFacts(too_old=AFTER), BEFORE) == ()
