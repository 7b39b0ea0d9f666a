"""Garbage and its reasons, rule by rule: one changed fact ends each rule."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.days.partitions import Partition, Publication
from prism_assets.domain.files.garbage import (
    DayRecords,
    Garbage,
    Reason,
    Records,
    Upload,
    UploadRecord,
    garbage_reason,
    is_foreign,
    within_fraction,
)
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.files.rewrites import RewriteKind, RewriteRecord, RewriteState
from prism_assets.domain.names import TableName
from prism_assets_tests.builders import utc

DAY = date(2026, 3, 1)
KEYS = TableKeys("lake", "", TableName("log", "events"))
SHOWN = Publication(20, 25)
NOON = utc("2026-03-02T12:00")


def a_partition(**facts: Any) -> Partition:
    """A switched partition with ranges up to 20, small objects up to 25, and a current publication."""
    fields: dict[str, Any] = {
        "partition_id": 1,
        "table_id": 1,
        "date": DAY,
        "current_version": 20,
        "desired_version": 20,
        "last_live_object_id": 15,
        "switched": True,
        "closing_batch_id": 1,
        "published_object_id": 25,
        "last_object_id": 25,
    }
    return Partition(**{**fields, **facts})


def reason(
    key: str,
    *,
    partition: Partition | None = None,
    bounds: Collection[tuple[int, int]] = ((0, 5), (5, 20)),
    shown: Publication | None = SHOWN,
    upload: UploadRecord | None = None,
    quarantined: int | None = None,
    folded_object_id: int | None = None,
    state: RewriteState | None = None,
    kind: RewriteKind = RewriteKind.ERASE,
) -> Reason | None:
    """Returns the reason for a key.

    `state` is that of the rewrite in the key, `kind` that of the current object's rewrite.
    """
    named = KEYS.parse(key)
    assert named is not None
    day = DayRecords(
        partition=partition or a_partition(), bounds=tuple(bounds), shown=shown, folded_object_id=folded_object_id
    )
    rewrites = {upload.rewrite_id: RewriteRecord(kind=kind, state=RewriteState.DONE)} if upload else {}
    rewrite_id = getattr(named, "rewrite_id", 0)
    if state:
        rewrites[rewrite_id] = RewriteRecord(kind=kind, state=state)
    uploads = {Upload(DAY, 7, 0): upload or UploadRecord()}
    kept = {} if quarantined is None else {Upload(DAY, 7, 0): quarantined}
    return garbage_reason(named, Records(days={DAY: day}, uploads=uploads, quarantined=kept, rewrites=rewrites))


@pytest.mark.parametrize(
    ("rewrite_id", "state", "expected"),
    [
        (2, RewriteState.DONE, Reason.SUPERSEDED),  # the range was rewritten under the number 4
        (4, RewriteState.DONE, None),  # its object
        (7, RewriteState.RUNNING, None),  # a merge or an erasure may be about to commit it
        (7, RewriteState.DROPPED, Reason.ABANDONED),
        (7, RewriteState.DONE, Reason.SUPERSEDED),  # a copy, and copying has ended without it
        (7, None, Reason.SUPERSEDED),  # PostgreSQL was set back to before it
        (9, RewriteState.DONE, None),  # a copy that is to take the place of the range
    ],
)
def test_a_merged_object_goes_when_its_rewrite_cannot_put_it_in_place_any_more(
    rewrite_id: int, state: RewriteState | None, expected: Reason | None
) -> None:
    named = KEYS.parse(KEYS.merged_object(DAY, 0, 5, rewrite_id))
    assert named is not None
    day = DayRecords(
        partition=a_partition(), bounds=((0, 5),), rewrite_ids={(0, 5): 4}, shown=SHOWN, staged=frozenset({(0, 5, 9)})
    )
    rewrites = {rewrite_id: RewriteRecord(kind=RewriteKind.MERGE, state=state)} if state else {}
    records = Records(days={DAY: day}, uploads={}, quarantined={}, rewrites=rewrites)
    assert garbage_reason(named, records) is expected


def test_a_merged_object_beyond_the_chain_goes_unless_its_rewrite_is_running() -> None:
    key, merged = KEYS.merged_object(DAY, 20, 25, 7), a_partition(last_object_id=20)
    assert reason(key, partition=merged) is Reason.ABANDONED, "after PostgreSQL was set back"
    assert reason(key, partition=merged, state=RewriteState.RUNNING) is None
    assert reason(key, state=RewriteState.DROPPED) is Reason.ABANDONED
    assert reason(key, partition=merged, state=RewriteState.DONE) is Reason.ABANDONED, "another got the number"
    assert reason(key) is None, "small objects of the day are to be merged again, and may be gone"


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 5), None),  # a range
        ((5, 20), None),  # the last one
        ((5, 10), Reason.SUPERSEDED),  # extended to (5, 20]
        ((0, 10), Reason.SUPERSEDED),  # of a try that was planned otherwise: (0, 5] is a range
        ((3, 10), Reason.ABANDONED),
        ((0, 20), Reason.ABANDONED),  # another one ends there, so it never was a range
        ((20, 25), None),  # a merge may be about to commit it
        ((5, 25), None),
        ((20, 99), None),
    ],
)
def test_a_merged_object_is_garbage_when_it_is_no_range_and_none_can_become(
    bounds: tuple[int, int], expected: Reason | None
) -> None:
    assert reason(KEYS.merged_object(DAY, *bounds)) is expected


def test_a_superseded_merged_object_stays_while_readers_may_have_a_manifest_of_its_version() -> None:
    key = KEYS.merged_object(DAY, 5, 10)
    assert reason(key, shown=Publication(10, 12)) is None
    assert reason(key, shown=Publication(0, 12)) is None
    assert reason(key, shown=None) is None
    assert reason(key, shown=Publication(11, 12)) is Reason.SUPERSEDED


def test_changes_that_no_fold_has_taken_stay_as_they_are_now_and_not_as_they_were_before_an_erasure() -> None:
    key, before = KEYS.small_object(DAY, 7, delayed=True, rewrite_id=1), KEYS.small_object(DAY, 7, delayed=True)
    upload = UploadRecord(object_id=20, delayed=True, rewrite_id=1, is_over=True)
    for name, expected in ((key, None), (before, Reason.MERGED)):
        assert reason(name, upload=upload, folded_object_id=19) is expected
        assert reason(name, upload=upload, folded_object_id=20) is Reason.MERGED


def test_before_the_switch_no_manifest_names_merged_objects() -> None:
    key = KEYS.merged_object(DAY, 5, 10)
    closed = a_partition(switched=False, current_version=0)
    assert reason(key, partition=closed, shown=Publication(0, 12)) is Reason.SUPERSEDED
    assert reason(key, partition=closed, shown=None) is Reason.SUPERSEDED
    assert reason(KEYS.merged_object(DAY, 0, 3), partition=closed, bounds=()) is None, "a first merge may commit it"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Publication(19, 25), Reason.REPLACED),
        (Publication(20, 24), Reason.REPLACED),
        (Publication(0, 3), Reason.REPLACED),
        (Publication(20, 25), None),  # what readers were sent to when the lease began
        (Publication(20, 26), None),  # since
        (Publication(20, 25, 1), None),
        (Publication(19, 25, 1), None),  # not behind it in all: kept
    ],
)
def test_a_list_of_objects_is_garbage_when_readers_were_sent_beyond_it(
    shown: Publication, expected: Reason | None
) -> None:
    for build in (KEYS.manifest, KEYS.symlinks):
        key = build(DAY, shown.version, shown.published_object_id, shown.revision)
        assert reason(key) is expected
        assert reason(key, shown=None) is None
        assert reason(key, shown=Publication(0, 0)) is None


@pytest.mark.parametrize("delayed", [False, True])
def test_a_small_object_is_garbage_when_all_readers_have_its_rows_in_merged_objects(delayed: bool) -> None:
    key = KEYS.small_object(DAY, 7, delayed=delayed)

    def of(number: int, **more: Any) -> Reason | None:
        return reason(key, upload=UploadRecord(object_id=number, delayed=delayed, is_over=True), **more)

    assert of(20) is Reason.MERGED
    assert of(21) is None
    assert of(20, shown=Publication(19, 25)) is None
    assert of(1, shown=Publication(0, 25)) is None, "a manifest of small objects"
    assert of(1, shown=Publication(0, 0)) is None, "the live prefix"
    assert of(1, shown=None) is None
    assert of(1, partition=a_partition(switched=False)) is None


def test_what_a_small_object_was_rewritten_from_goes_when_readers_had_a_manifest_that_names_the_new_one() -> None:
    old, copy = KEYS.small_object(DAY, 7, delayed=True), KEYS.small_object(DAY, 7, delayed=False)
    new = KEYS.small_object(DAY, 7, delayed=True, rewrite_id=2)
    shown = Publication(20, 25, 3)

    def of(
        key: str,
        *,
        delayed: bool = True,
        shown: Publication | None = shown,
        state: RewriteState | None = None,
        kind: RewriteKind = RewriteKind.ERASE,
        **more: Any,
    ) -> Reason | None:
        record = UploadRecord(object_id=22, delayed=delayed, rewrite_id=2, is_over=True)
        partition = a_partition(revision=3, **more)
        return reason(key, upload=record, shown=shown, partition=partition, state=state, kind=kind)

    assert of(old) is Reason.SUPERSEDED
    assert of(KEYS.small_object(DAY, 7, delayed=True, rewrite_id=1)) is Reason.SUPERSEDED
    assert of(new) is None
    later = KEYS.small_object(DAY, 7, delayed=True, rewrite_id=3)
    assert of(later, state=RewriteState.RUNNING) is None, "of a rewriting that is under way"
    assert of(later, state=RewriteState.DROPPED) is Reason.STRAY
    assert of(old, kind=RewriteKind.REBUILD) is Reason.REBUILT
    assert of(old, kind=RewriteKind.REBUILD, shown=Publication(20, 25, 2)) is None
    assert of(old, shown=Publication(20, 25, 2)) is None
    assert of(old, shown=None) is None
    assert of(copy, delayed=False) is Reason.SUPERSEDED
    assert of(copy, delayed=False, shown=Publication(0, 0), last_live_object_id=None, switched=False) is None, "listed"


@pytest.mark.parametrize("delayed", [False, True])
def test_an_upload_that_nobody_will_commit_is_a_stray(delayed: bool) -> None:
    key = KEYS.small_object(DAY, 7, delayed=delayed)
    assert reason(key, upload=UploadRecord(is_over=True)) is Reason.STRAY
    assert reason(key, upload=UploadRecord(is_over=False)) is None
    assert reason(key, upload=UploadRecord(is_over=True), shown=None) is Reason.STRAY


def test_quarantined_lines_are_garbage_only_if_they_were_never_committed() -> None:
    key = KEYS.quarantine(DAY, 7)
    assert reason(key, upload=UploadRecord(is_over=True)) is Reason.STRAY
    assert reason(key, upload=UploadRecord(is_over=True), quarantined=0) is None
    assert reason(key, upload=UploadRecord(is_over=False)) is None


def test_quarantined_lines_are_garbage_when_fewer_of_them_are_kept_and_not_before() -> None:
    over = UploadRecord(is_over=True)
    assert reason(KEYS.quarantine(DAY, 7), upload=over, quarantined=1) is Reason.STRAY
    assert reason(KEYS.quarantine(DAY, 7, 0, 1), upload=over, quarantined=1) is None
    later = KEYS.quarantine(DAY, 7, 0, 2)
    assert reason(later, upload=over, quarantined=1, state=RewriteState.RUNNING) is None, "about to be recorded"
    assert reason(later, upload=over, quarantined=1, state=RewriteState.DROPPED) is Reason.STRAY
    assert reason(KEYS.quarantine(DAY, 7, 0, 2), upload=over) is Reason.STRAY


def test_what_is_not_on_record_is_foreign_and_stays() -> None:
    unknown = Records(days={}, uploads={Upload(DAY, 7, 0): UploadRecord(is_foreign=True, is_over=True)}, quarantined={})
    for key in (
        KEYS.small_object(DAY, 7, delayed=False),
        KEYS.merged_object(DAY, 0, 5),
        KEYS.manifest(DAY, 5, 5),
        KEYS.quarantine(DAY, 7),
    ):
        named = KEYS.parse(key)
        assert named is not None
        assert is_foreign(named, unknown)
        assert garbage_reason(named, unknown) is None
    assert is_foreign(None, unknown)


def test_a_small_object_in_the_other_tier_than_its_record_is_foreign() -> None:
    record = UploadRecord(object_id=1, delayed=True, is_over=True)
    assert reason(KEYS.small_object(DAY, 7, delayed=False), upload=record) is None
    assert reason(KEYS.small_object(DAY, 7, delayed=True), upload=record) is Reason.MERGED


def some_garbage(*lengths: int) -> list[Garbage]:
    """The first one is the oldest."""
    return [
        Garbage(
            key=f"k{number}",
            date=DAY,
            content_length=length,
            last_modified=NOON + timedelta(hours=number),
            reason=Reason.MERGED,
        )
        for number, length in enumerate(lengths)
    ]


def test_a_run_deletes_the_oldest_up_to_its_fraction() -> None:
    garbage = some_garbage(10, 10, 10, 10)
    chosen, held_back = within_fraction(reversed(garbage), objects=10, content_length=1_000, fraction=0.25)
    assert ([*chosen], [*held_back]) == (garbage[:2], garbage[2:]), "of the objects"
    chosen, held_back = within_fraction(garbage, objects=1_000, content_length=120, fraction=0.25)
    assert ([*chosen], [*held_back]) == (garbage[:3], garbage[3:]), "of the bytes"


@given(
    lengths=st.lists(st.integers(0, 1_000), max_size=30),
    fraction=st.floats(0.01, 1),
    more=st.tuples(st.integers(0, 30), st.integers(0, 10_000)),
)
def test_every_run_gets_on_and_none_deletes_more_than_its_fraction(
    lengths: list[int], fraction: float, more: tuple[int, int]
) -> None:
    garbage = some_garbage(*lengths)
    objects, size = len(lengths) + more[0], sum(lengths) + more[1]
    chosen, held_back = within_fraction(garbage, objects=objects, content_length=size, fraction=fraction)
    assert [*chosen, *held_back] == garbage
    assert bool(chosen) == bool(garbage)
    assert len(chosen) <= 1 or len(chosen) <= objects * fraction
    assert len(chosen) <= 1 or sum(item.content_length for item in chosen) <= size * fraction
    if fraction == 1:
        assert not held_back


def test_changes_that_no_fold_has_taken_stay_and_so_does_what_is_about_to_be_recorded_of_them() -> None:
    upload = UploadRecord(object_id=15, is_over=True, rewrite_id=1)
    found = [
        reason(
            KEYS.small_object(DAY, 7, delayed=False, rewrite_id=number),
            upload=upload,
            folded_object_id=10,
            state=state,
        )
        for number, state in ((1, RewriteState.DONE), (2, RewriteState.RUNNING))
    ]
    assert found == [None, None]
