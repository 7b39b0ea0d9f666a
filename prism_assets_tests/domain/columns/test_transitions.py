"""When a column is known by its new name or type: by what is left of before, and by how long readers may look back."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from prism_assets.domain.columns.transitions import (
    ColumnRename,
    ColumnWidening,
    ObjectsLeft,
    RenameState,
    TransitionFacts,
    WideningState,
    next_step,
)
from prism_assets.domain.columns.types import BigIntType, IntegerType
from prism_assets_tests.builders import utc

BEGUN = utc("2026-03-01T12:00")
LEASE, GRACE = timedelta(hours=4), timedelta(days=30)
LEFT = ObjectsLeft(
    merged=2, small=1, staging=3, unpublished_days=1, first_day=date(2026, 2, 1), last_day=date(2026, 2, 3)
)


@pytest.mark.parametrize(
    ("state", "left", "shown", "hours", "told"),
    [
        (
            RenameState.REWRITING,
            LEFT,
            0,
            999,
            "older objects are left: 2 merged objects to be rewritten, 1 small object to be merged, 3 staging "
            "objects claimed earlier, to be converted, 1 day to be published, of 2026-02-01 to 2026-02-03",
        ),
        (RenameState.REWRITING, ObjectsLeft(), None, 0, RenameState.DRAINING),
        (RenameState.DRAINING, ObjectsLeft(), 0, 3.9, "readers may use older objects until 2026-03-01 16:00Z"),
        (RenameState.DRAINING, ObjectsLeft(), None, 4, RenameState.BOTH_SHOWN),
        (RenameState.BOTH_SHOWN, ObjectsLeft(), None, 9_999, "not every catalog shows the current state yet"),
        (RenameState.BOTH_SHOWN, ObjectsLeft(), 0, 719, "Glue shows both names until 2026-03-31 12:00Z"),
        (RenameState.BOTH_SHOWN, ObjectsLeft(), 0, 720, RenameState.DRAINING_FORMER),
        (RenameState.DRAINING_FORMER, ObjectsLeft(), None, 9_999, "not every catalog shows the current state yet"),
        (RenameState.DRAINING_FORMER, ObjectsLeft(), 0, 3, "readers may use the former name until 2026-03-01 16:00Z"),
        (RenameState.DRAINING_FORMER, ObjectsLeft(), 0, 4, None),
        (RenameState.BOTH_SHOWN, ObjectsLeft(), 480, 1_199, "Glue shows both names until 2026-04-20 12:00Z"),
        (RenameState.BOTH_SHOWN, ObjectsLeft(), 480, 1_200, RenameState.DRAINING_FORMER),
        (
            RenameState.DRAINING_FORMER,
            ObjectsLeft(),
            9,
            12.9,
            "readers may use the former name until 2026-03-02 01:00Z",
        ),
        (RenameState.DRAINING_FORMER, ObjectsLeft(), 9, 13, None),
        (RenameState.DRAINING_FORMER, ObjectsLeft(), -9, 3, "readers may use the former name until 2026-03-01 16:00Z"),
    ],
)
def test_a_state_ends_when_no_reader_would_miss_a_value(
    state: RenameState, left: ObjectsLeft, shown: float | None, hours: float, told: RenameState | str | None
) -> None:
    rename = ColumnRename(former="uid", state=state, version=2, since=3)
    since_shown = None if shown is None else BEGUN + timedelta(hours=shown)
    facts = TransitionFacts(begun=BEGUN, since=BEGUN, left=left, shown=since_shown)
    step = next_step(rename, facts, BEGUN + timedelta(hours=hours), reader_lease=LEASE, grace=GRACE)
    assert (step.to if step.is_due else step.reason) == told


def test_objects_have_a_wider_type_when_every_catalog_shows_it() -> None:
    widening = ColumnWidening(former=IntegerType(), version=2, shown_first=BigIntType())
    waits = "not every catalog shows it yet, and until then new objects keep the old type"
    for shown, told in ((None, waits), (BEGUN, "")):
        facts = TransitionFacts(begun=BEGUN, since=BEGUN, left=LEFT, shown=shown)
        step = next_step(widening, facts, BEGUN, reader_lease=LEASE, grace=GRACE)
        assert (step.to, step.reason) == (WideningState.REWRITING, told)


@pytest.mark.parametrize("shown", [None, BEGUN])
def test_a_widening_ends_when_readers_are_sent_to_nothing_narrow(shown: datetime | None) -> None:
    widening = ColumnWidening(former=IntegerType(), version=2)
    for left, told in ((LEFT, f"older objects are left: {LEFT}"), (ObjectsLeft(), "")):
        facts = TransitionFacts(begun=BEGUN, since=BEGUN, left=left, shown=shown)
        step = next_step(widening, facts, BEGUN, reader_lease=LEASE, grace=GRACE)
        assert (step.to, step.reason, step.is_due) == (None, told, not told)


MANY, ONE_LEFT = ObjectsLeft(uncopied=33), ObjectsLeft(uncopied=32, in_open_days=9, staging=1, merges=2, small=3)


@pytest.mark.parametrize(
    ("is_flipping", "flip_version", "left", "hours", "asked", "told"),
    [
        (False, 0, ObjectsLeft(), 0, False, None),
        (False, 9, ObjectsLeft(), 1, False, None),
        (False, 0, ONE_LEFT, 0, False, WideningState.FLIPPING),
        (False, 0, MANY, 99, True, "merged objects are being copied with it: 33 objects left"),
        (False, 0, ObjectsLeft(failing_merges=1), 99, True, "the flip to it waits for 1 merge that failed"),
        (
            False,
            0,
            ObjectsLeft(publications=2),
            0,
            False,
            "the flip to it waits for 2 publications not seen to end",
        ),
        (False, 9, ONE_LEFT, 24, False, WideningState.FLIPPING),
        (False, 9, ONE_LEFT, 23, True, WideningState.FLIPPING),
        (True, 9, ONE_LEFT, 1, False, WideningState.COPYING),
        (
            True,
            9,
            ObjectsLeft(merges=1),
            0.9,
            False,
            "new objects wait, until 2026-03-01 13:00Z at most, for 1 merge to be run",
        ),
        (True, 9, ObjectsLeft(), 99, False, None),
    ],
)
def test_a_flip_begins_when_little_is_left_and_ends_in_time(
    is_flipping: bool, flip_version: int, left: ObjectsLeft, hours: float, asked: bool, told: WideningState | str | None
) -> None:
    widening = ColumnWidening(
        former=IntegerType(), version=2, copy_type=BigIntType(), is_flipping=is_flipping, flip_version=flip_version
    )
    facts = TransitionFacts(begun=BEGUN, since=BEGUN, left=left, shown=None)
    now = BEGUN + timedelta(hours=hours)
    step = next_step(widening, facts, now, reader_lease=LEASE, grace=GRACE, is_asked_for=asked)
    assert (step.to if step.is_due else step.reason) == told


def test_a_flip_has_new_objects_wait_by_what_is_left_and_for_an_hour_at_its_second_try() -> None:
    def lasts(left: ObjectsLeft, flip_version: int = 0) -> float:
        widening = ColumnWidening(former=IntegerType(), version=2, copy_type=BigIntType(), flip_version=flip_version)
        facts = TransitionFacts(begun=BEGUN, since=BEGUN, left=left, shown=None)
        step = next_step(widening, facts, BEGUN + timedelta(days=1), reader_lease=LEASE, grace=GRACE)
        assert step.to is WideningState.FLIPPING
        return step.flip_limit.total_seconds() / 60

    assert lasts(ObjectsLeft(in_open_days=6)) == 11
    assert lasts(ObjectsLeft(in_open_days=5_000)) == 60
    assert lasts(ObjectsLeft(in_open_days=6), flip_version=9) == 60


def test_a_flip_that_was_given_up_says_when_it_is_tried_again() -> None:
    widening = ColumnWidening(former=IntegerType(), version=2, copy_type=BigIntType(), flip_version=9)
    facts = TransitionFacts(begun=BEGUN, since=BEGUN, left=ObjectsLeft(in_open_days=1), shown=None)
    step = next_step(widening, facts, BEGUN, reader_lease=LEASE, grace=GRACE)
    assert step.reason.endswith(
        "it is tried again at 2026-03-02 12:00Z, or by `prism table flip`; left now: 1 object of open days"
    )
