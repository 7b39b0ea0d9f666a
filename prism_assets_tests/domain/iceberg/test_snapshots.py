"""Changes of a commit to an Iceberg table: examples first, then properties of every difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.iceberg.snapshots import (
    DayChange,
    KnownTable,
    ListedFile,
    Operation,
    RetainedSnapshot,
    SnapshotChange,
    SnapshotContent,
    changes_a_length,
    day_change,
    expired_snapshots,
    next_pace_time,
    seconds_to_wait,
    wanted_snapshot,
)
from prism_assets_tests.builders import a_range, a_small_object, utc
from prism_assets_tests.domain.days.test_partitions import a_partition

DAY = date(2026, 3, 1)
NOON = utc("2026-03-01T12:00")
HOUR = timedelta(hours=1)


def a_file(number: int, content_length: int = 100, row_count: int = 10) -> DataFile:
    return a_small_object(number, content_length=content_length, row_count=row_count)


def an_entry(number: int, content_length: int = 100, row_count: int = 10) -> ListedFile:
    return ListedFile.of(a_file(number, content_length, row_count))


def a_change(wanted: list[DataFile], listed: list[ListedFile], *, rewrites: bool = False) -> DayChange:
    return day_change(DAY, Publication(0, 0), wanted, listed, rewrites=rewrites)


def applied(listed: list[ListedFile], change: DayChange) -> Counter[ListedFile]:
    """Returns the files of a day after a change."""
    before, removed = Counter(listed), Counter(change.removed)
    assert not removed - before, "what goes was there"
    return before - removed + Counter(map(ListedFile.of, change.added))


def test_a_file_that_is_listed_stays() -> None:
    assert a_change([a_file(1)], [an_entry(1)]).changes_nothing


def test_a_file_that_is_listed_twice_goes_once() -> None:
    change = a_change([a_file(1)], [an_entry(1), an_entry(1)])
    assert (change.added, change.removed) == ((), (an_entry(1),))


def test_a_file_of_another_length_goes_and_comes() -> None:
    change = a_change([a_file(1, 101)], [an_entry(1, 100)])
    assert (change.added, change.removed) == ((a_file(1, 101),), (an_entry(1, 100),))
    assert changes_a_length([change])


def test_a_file_that_takes_the_place_of_others_expires_nothing() -> None:
    assert not changes_a_length([a_change([a_file(3)], [an_entry(1), an_entry(2)])])


FILES = st.builds(a_file, st.integers(1, 6), st.sampled_from([100, 101]), st.sampled_from([10, 11]))
WANTED = st.lists(FILES, max_size=6, unique_by=lambda file: file.key)
LISTED = st.lists(st.builds(ListedFile.of, FILES), max_size=12)


@given(WANTED, LISTED)
def test_a_day_lists_exactly_what_it_should_after_its_change(wanted: list[DataFile], listed: list[ListedFile]) -> None:
    assert applied(listed, a_change(wanted, listed)) == Counter(map(ListedFile.of, wanted))


@given(WANTED, LISTED)
def test_what_is_as_it_should_be_is_not_touched(wanted: list[DataFile], listed: list[ListedFile]) -> None:
    change = a_change(wanted, listed)
    kept = Counter(listed) & Counter(map(ListedFile.of, wanted))
    assert Counter(change.removed) == Counter(listed) - kept
    assert Counter(map(ListedFile.of, change.added)) == Counter(map(ListedFile.of, wanted)) - kept


@given(WANTED, LISTED)
def test_a_change_that_landed_leaves_nothing_to_do(wanted: list[DataFile], listed: list[ListedFile]) -> None:
    after = list(applied(listed, a_change(wanted, listed)).elements())
    assert a_change(wanted, after).changes_nothing


@given(WANTED, LISTED)
def test_lengths_are_told_where_a_key_goes_and_comes(wanted: list[DataFile], listed: list[ListedFile]) -> None:
    change = a_change(wanted, listed)
    both = {file.url for file in change.added} & {file.url for file in change.removed}
    assert changes_a_length([change]) == bool(both)


@given(st.lists(st.tuples(WANTED, LISTED, st.booleans()), max_size=3), st.booleans())
def test_the_operation_says_what_becomes_of_the_rows(
    days: list[tuple[list[DataFile], list[ListedFile], bool]], drops_mixed_manifests: bool
) -> None:
    changes = tuple(a_change(wanted, listed, rewrites=rewrites) for wanted, listed, rewrites in days)
    change = SnapshotChange(days=changes, drops_mixed_manifests=drops_mixed_manifests)
    if change.operation is Operation.APPEND:
        assert change.files_out == 0
    if change.operation is Operation.REPLACE:
        assert all(day.rows_in == day.rows_out for day in changes)
    if change.files_out and change.rows_in != change.rows_out:
        assert change.operation is Operation.OVERWRITE
    assert change.makes_snapshot == (drops_mixed_manifests or any(not day.changes_nothing for day in changes))


def test_rows_of_one_day_do_not_replace_those_of_another() -> None:
    expired, grown = a_change([], [an_entry(1)]), a_change([a_file(2)], [])
    assert expired.rows_out == grown.rows_in
    assert SnapshotChange(days=(expired, grown)).operation is Operation.OVERWRITE
    assert SnapshotChange(days=(a_change([a_file(2)], [an_entry(1)]),)).operation is Operation.REPLACE


def test_records_that_a_fold_wrote_are_other_rows() -> None:
    change = day_change(DAY, Publication(0, 0), [a_file(2)], [an_entry(1)], rewrites=False, updates=True)
    assert SnapshotChange(days=(change,)).operation is Operation.OVERWRITE


def test_a_change_of_columns_alone_makes_no_snapshot() -> None:
    change = SnapshotChange(days=(), sets_schema=True)
    assert (change.makes_snapshot, change.changes_nothing) == (False, False)


def test_a_day_is_wanted_up_to_its_last_object_or_range() -> None:
    partition = a_partition(desired_version=4, last_object_id=6, revision=2)
    content = SnapshotContent(
        partition=partition, ranges=(a_range(0, 4),), small_objects=(a_small_object(5), a_small_object(6))
    )
    assert content.publication == wanted_snapshot(partition) == Publication(4, 6, 2)


def test_a_merged_day_is_wanted_up_to_its_last_range() -> None:
    partition = a_partition(desired_version=6, last_object_id=6)
    content = SnapshotContent(partition=partition, ranges=(a_range(0, 6),), small_objects=())
    assert content.publication == wanted_snapshot(partition) == Publication(6, 6, 0)


@st.composite
def histories(draw: st.DrawFn) -> list[RetainedSnapshot]:
    """Snapshots in a row, some at the same instant."""
    minutes = sorted(draw(st.lists(st.integers(0, 600), max_size=12)))
    return [
        RetainedSnapshot(
            snapshot_id=number,
            parent_id=number - 1 or None,
            sequence_number=number,
            time=NOON + timedelta(minutes=minute),
            is_ours=True,
        )
        for number, minute in enumerate(minutes, start=1)
    ]


def current_at(snapshots: list[RetainedSnapshot], instant: datetime) -> RetainedSnapshot | None:
    """Returns the retained snapshot visible to readers at an instant."""
    return max(
        (item for item in snapshots if item.time <= instant), key=lambda item: item.sequence_number, default=None
    )


@given(histories(), st.sets(st.integers(1, 12)), st.integers(0, 900), st.integers(0, 12))
def test_whatever_was_current_within_the_time_that_is_kept_stays(
    snapshots: list[RetainedSnapshot], referenced: set[int], minute: int, hours: int
) -> None:
    assume(snapshots)
    now, keep = NOON + timedelta(minutes=minute), hours * HOUR
    head = snapshots[-1].snapshot_id
    gone = set(expired_snapshots(snapshots, referenced | {head}, now, keep))
    left = [item for item in snapshots if item.snapshot_id not in gone]
    assert not gone & (referenced | {head})
    for instant in {now - keep, now, *(item.time for item in snapshots if item.time >= now - keep)}:
        assert current_at(left, instant) == current_at(snapshots, instant)


@given(histories(), st.integers(0, 900), st.integers(0, 12))
def test_at_most_one_snapshot_is_older_than_what_is_kept(
    snapshots: list[RetainedSnapshot], minute: int, hours: int
) -> None:
    now, keep = NOON + timedelta(minutes=minute), hours * HOUR
    gone = set(expired_snapshots(snapshots, (), now, keep))
    assert sum(item.time <= now - keep for item in snapshots if item.snapshot_id not in gone) <= 1
    assert gone == set(expired_snapshots(snapshots[::-1], (), now, keep)), "in whatever order they are given"


@given(st.lists(st.floats(0, 59), min_size=2, max_size=30))
def test_commits_of_a_table_that_changes_all_the_time_keep_their_pace(
    late: list[float],
) -> None:
    known, time = KnownTable(table_id=1, identifier="log_iceberg.events"), NOON
    for seconds in late:
        time += timedelta(seconds=max(0.0, seconds_to_wait(known, 60, time)) + seconds)
        known = replace(known, pace_time=next_pace_time(known, 60, time))
    assert time - NOON < timedelta(seconds=60 * len(late) + max(late))
    assert seconds_to_wait(known, 60, time) > 0


def test_a_table_that_rested_or_was_not_waited_for_begins_anew() -> None:
    known = KnownTable(table_id=1, identifier="log_iceberg.events", pace_time=NOON)
    for seconds in (10, 120, 3_600):
        assert next_pace_time(known, 60, time := NOON + timedelta(seconds=seconds)) == time
    assert next_pace_time(known, 60, NOON + timedelta(seconds=119)) == NOON + timedelta(seconds=60)
    assert next_pace_time(None, 60, NOON) == NOON
