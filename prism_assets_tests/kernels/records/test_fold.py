"""Folds: places of records, rewrites, settling, and effects of bad input."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from prism_assets.domain.records.folding import FoldResult, FoldTask, RecordObject, RecordPart
from prism_assets.domain.records.joins import DELETE, PublishPolicy
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.records.fold import fold_buckets
from prism_assets_tests.kernels.builders import Lake
from prism_assets_tests.kernels.records.builders import (
    BACK,
    COUNTED,
    FRONT,
    LATENESS,
    START,
    WINDOW,
    FoldedTable,
    a_change,
    a_join,
    a_join_table,
    a_model,
    as_rows,
)

HOUR = 3_600
SPAN = WINDOW + LATENESS
VISIBLE, HIDDEN, PENDING = RecordPart.VISIBLE, RecordPart.HIDDEN, RecordPart.PENDING


@pytest.fixture
def table(lake: Lake) -> FoldedTable:
    return a_folded_table(lake)


def a_folded_table(lake: Lake, **more: Any) -> FoldedTable:
    return FoldedTable(lake, a_join_table(a_join(**{"buckets": 1, **more})))


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def only(objects: list[RecordObject]) -> RecordObject:
    (item,) = objects
    return item


# --- one row a record


def test_parts_of_several_streams_become_one_row(table: FoldedTable) -> None:
    changes = [
        a_change("front", 1, 0, page="/"),
        a_change("back", 2, 5, version=1, state="ok"),
        a_change("counted", 3, 7, tick=1, total=3, small=4, low=5, high=1_000, origin="x", hits=9),
    ]
    table.put(*changes)
    (row,) = table.seen()
    assert (row["page"], row["state"], row["total"], row["hits"], row["origin"]) == ("/", "ok", 3, 1, "x")
    assert [row] == as_rows(a_model(table.table).records_of(changes))


def test_a_column_of_another_group_is_nobodys_business(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, page="/", state="bad", total=5))
    (row,) = table.seen()
    assert (row["state"], row["total"]) == (None, None)


def test_a_fold_without_changes_writes_nothing(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, page="/"))
    (result,) = table.fold([], after(60))
    assert result == FoldResult(fold_id=2, number=0)


def test_tasks_take_the_changes_of_their_own_buckets(lake: Lake) -> None:
    table = a_folded_table(lake, buckets=4)
    changes = [a_change("front", number, 0, id=f"key {number}", page="/") for number in range(40)]
    results = table.fold([table.commit(changes)], START, count=2)
    assert [result.changes for result in results] == [result.folded for result in results]
    assert sum(result.changes for result in results) == 40
    assert len(table.seen()) == 40
    assert {item.bucket_number for item in table.of(VISIBLE)} == {0, 1, 2, 3}


# --- where records live


def test_a_record_has_the_date_of_its_first_event_when_it_was_published_and_keeps_it(table: FoldedTable) -> None:
    """A record across midnight is joined, without a second day."""
    table.put(a_change("back", 1, HOUR + 30, version=1, state="ok"))
    assert only(table.of(VISIBLE)).date == date(2026, 3, 9)
    table.put(a_change("front", 2, HOUR - 30, page="/"))
    item = only(table.of(VISIBLE))
    assert item.date == date(2026, 3, 9)
    (row,) = table.seen()
    assert (row["page"], row["state"], row["time"]) == ("/", "ok", int(after(HOUR - 30).timestamp()) * 1_000)


def test_records_of_a_quarter_of_an_hour_share_an_object(table: FoldedTable) -> None:
    table.put(*(a_change("front", number, 300 * number, id=f"k{number}", page="/") for number in range(6)))
    assert [item.row_count for item in table.of(VISIBLE)] == [3, 3]
    assert table.of(VISIBLE)[1].cohort - table.of(VISIBLE)[0].cohort == 1


def test_records_that_live_for_ever_share_one_cohort(lake: Lake) -> None:
    table = a_folded_table(lake, window_seconds=None)
    table.put(*(a_change("front", number, 300 * number, id=f"k{number}", page="/") for number in range(6)))
    item = only([item for item in table.of(VISIBLE) if item.date == date(2026, 3, 8)])
    assert (item.cohort, item.row_count, item.earliest_settle) == (0, 6, None)


def test_a_change_that_bridges_two_records_leaves_the_record_file_of_the_elder(table: FoldedTable) -> None:
    """Both objects are replaced at once: at no time has the record two rows, or none."""
    table.put(a_change("front", 1, 1_000, page="old"))
    table.put(a_change("back", 2, 1_000 + 2 * WINDOW, version=1, state="new"))
    elder, younger = table.of(VISIBLE)
    assert elder.cohort < younger.cohort
    (result,) = table.publish([table.commit([a_change("front", 3, 1_000 + WINDOW, page="between")])])
    assert set(result.replaced) == {elder.object_id, younger.object_id}
    assert (only(table.of(VISIBLE)).date, only(table.of(VISIBLE)).cohort) == (elder.date, elder.cohort)
    (row,) = table.seen()
    assert (row["page"], row["state"]) == ("between", "new")


def test_records_are_sorted_by_key_and_time(table: FoldedTable) -> None:
    keys = ["b", "ä", "a", "a\0", "Z"]
    table.put(*(a_change("front", number, 0, id=key, page="/") for number, key in enumerate(keys)))
    assert [row["id"] for row in table.stored_seen()] == sorted(keys)


def test_the_same_task_gives_the_same_bytes_under_the_same_keys(lake: Lake) -> None:
    table = a_folded_table(lake)
    changes = table.commit([a_change("front", n, n, id=f"k{n}", page="/", note=None) for n in range(50)])
    (task,) = table.tasks([changes], START, None)
    first = table.run(task)
    bodies = [lake.stores.get("lake", item.key) for item in first.written]
    again = table.run(task)
    assert again == first
    lake.stores.delete("lake", [item.key for item in first.written])
    assert table.run(task) == first
    assert [lake.stores.get("lake", item.key) for item in first.written] == bodies


# --- what waits


def with_a_hundred(lake: Lake, **policy: Any) -> FoldedTable:
    """A home of a hundred records, with a fold each 5 minutes."""
    table = a_folded_table(lake, publish=PublishPolicy(**policy), window_seconds=4 * HOUR)
    table.fold([table.commit([a_change("front", n, 0, id=f"k{n:03}", page="/") for n in range(100)])], START)
    assert len(table.seen()) == 100
    return table


def touching(count: int, number: int = 200) -> list[Any]:
    return [a_change("front", (number, n), 1, id=f"k{n:03}", page="new") for n in range(count)]


def test_changes_of_few_records_wait_until_they_are_stale(lake: Lake) -> None:
    table = with_a_hundred(lake)
    (result,) = table.fold([table.commit(touching(9), after(10))], after(20))
    assert (result.changes, result.folded, result.pending) == (9, 0, 9)
    waits = only(table.of(PENDING))
    assert (waits.oldest_change, waits.cohort, waits.bucket_number) == (after(10), 0, 0)
    assert [row["page"] for row in table.seen()] == ["/"] * 100
    (result,) = table.fold([], after(HOUR + 9))
    assert result.written == ()
    (result,) = table.fold([], after(HOUR + 10))
    assert (result.changes, result.folded, result.pending) == (0, 9, 0)
    assert table.of(PENDING) == []
    assert [row["page"] for row in table.seen()] == ["new"] * 9 + ["/"] * 91


def test_changes_of_many_records_do_not_wait(lake: Lake) -> None:
    table = with_a_hundred(lake)
    (result,) = table.fold([table.commit(touching(10), after(10))], after(20))
    assert (result.folded, result.pending) == (10, 0)


def test_what_waits_counts_with_what_comes(lake: Lake) -> None:
    table = with_a_hundred(lake)
    table.fold([table.commit(touching(6), after(10))], after(20))
    more = [a_change("front", (300, n), 1, id=f"k{n:03}", page="newer") for n in range(4, 10)]
    (result,) = table.fold([table.commit(more, after(310))], after(320))
    assert (result.changes, result.folded, result.pending) == (6, 12, 0)
    assert [row["page"] for row in table.seen()][:11] == ["new"] * 4 + ["newer"] * 6 + ["/"]


def test_objects_of_which_all_rows_still_wait_stay_until_there_are_many(lake: Lake) -> None:
    table = with_a_hundred(lake)
    for number in range(8):
        table.fold([table.commit(touching(1, 200 + number), after(10))], after(20))
    assert [item.row_count for item in table.of(PENDING)] == [1] * 8
    table.fold([table.commit(touching(1, 300), after(10))], after(20))
    assert only(table.of(PENDING)).row_count == 9


# --- settling


def test_settle_times_are_those_of_the_first_and_the_last_record(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, id="a", page="/"), a_change("front", 2, 60, id="b", page="/"))
    item = only(table.of(VISIBLE))
    assert (item.earliest_settle, item.latest_settle) == (after(SPAN), after(60 + SPAN))


def test_an_object_is_settled_once_all_of_its_records_are(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, id="a", page="/"), a_change("front", 2, 60, id="b", page="/"))
    (result,) = table.fold([], after(HOUR), settle_before=after(60 + SPAN))
    assert result.settled_objects == ()
    (result,) = table.fold([], after(HOUR), settle_before=after(60 + SPAN + 0.001))
    item = only(table.of(VISIBLE))
    assert (result.settled_objects, result.settled, result.written) == ((item.object_id,), 2, ())


def test_what_nobody_sees_goes_when_it_settles(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, id="a", page="/"), a_change("front", 2, 0, id="b", deleted=True))
    hidden, visible = only(table.of(HIDDEN)), only(table.of(VISIBLE))
    (result,) = table.fold([], after(HOUR), settle_before=after(SPAN + 1))
    assert (result.replaced, result.settled_objects) == ((hidden.object_id,), (visible.object_id,))
    assert table.of(HIDDEN) == []


def test_records_vanish_when_they_settle_and_the_others_stay(lake: Lake) -> None:
    """The last event decides on a whole record, however old its other parts are."""
    table = a_folded_table(lake, after=DELETE)
    table.put(
        a_change("front", 1, 0, id="a", page="/"),
        a_change("front", 2, 0, id="b", page="/"),
        a_change("back", 3, WINDOW, id="b", version=1, state="late"),
    )
    (result,) = table.fold([], after(HOUR), settle_before=after(SPAN + 1))
    assert result.settled == 1
    (row,) = table.seen()
    assert (row["id"], row["page"], row["state"]) == ("b", "/", "late")
    table.fold([], after(HOUR), settle_before=after(WINDOW + SPAN + 1))
    assert table.objects == {}


def test_a_change_that_waits_keeps_its_record_from_settling(lake: Lake) -> None:
    table = a_folded_table(lake, after=DELETE, publish=PublishPolicy(dirty=1.0))
    table.fold([table.commit([a_change("front", n, 0, id=f"k{n}", page="/") for n in range(4)])], START)
    late = table.commit([a_change("front", 9, WINDOW, id="k0", page="late")], START)
    (result,) = table.fold([late], START)
    assert (result.pending, only(table.of(PENDING)).earliest_settle) == (1, after(WINDOW + SPAN))
    table.fold([], START, settle_before=after(SPAN + 1))
    assert [row["page"] for row in table.seen()] == ["late"]


def test_what_is_born_and_settled_in_one_fold_is_never_seen(lake: Lake) -> None:
    table = a_folded_table(lake, after=DELETE)
    changes = table.commit([a_change("front", 1, 0, page="/")])
    (result,) = table.fold([changes], after(HOUR), settle_before=after(SPAN + 1))
    assert (result.written, result.folded) == ((), 1)


def test_nothing_settles_as_long_as_the_clock_is_not_known(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, page="/"))
    (result,) = table.fold([], after(10**7), settle_before=None)
    assert (result.settled_objects, result.replaced) == ((), ())


# --- deletes, ties and doubles


def test_a_delete_wins_over_an_insert_that_comes_behind_it(table: FoldedTable) -> None:
    """Whether a fold lies between the two or not."""
    table.put(a_change("back", 1, 0, version=3, deleted=True))
    assert (table.seen(), only(table.of(HIDDEN)).row_count) == ([], 1)
    table.put(a_change("back", 2, 0, version=2, state="old"))
    assert table.seen() == []
    table.put(a_change("back", 3, 0, version=4, state="new"))
    assert [row["state"] for row in table.seen()] == ["new"]
    assert table.of(HIDDEN) == []


def test_deletes_may_come_twice(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, page="/"))
    table.put(a_change("front", 2, 1, deleted=True))
    table.put(a_change("front", 3, 1, deleted=True), a_change("front", 2, 1, deleted=True))
    assert table.seen() == []


def test_the_sequence_of_a_removed_row_is_not_forgotten(lake: Lake) -> None:
    """Another group does not restore the row either, unless it owns the record."""
    table = a_folded_table(lake, groups=(FRONT, replace(BACK, owner=True), COUNTED))
    table.put(a_change("front", 1, 0, page="/"), a_change("back", 2, 0, version=2, state="there"))
    table.put(a_change("back", 3, 0, version=4, deleted=True))
    table.put(a_change("back", 4, 0, version=3, state="there"), a_change("front", 5, 0, page="/again"))
    assert table.seen() == []
    table.put(a_change("back", 6, 0, version=5, state="back"))
    assert [(row["state"], row["page"]) for row in table.seen()] == [("back", "/again")]


def test_equal_sequences_are_ordered_by_identity_and_not_by_arrival(table: FoldedTable) -> None:
    table.put(a_change("back", (7, 2), 0, version=1, part="m", state="greater"))
    table.put(a_change("back", (7, 1), 0, version=1, part="m", state="less"))
    assert [row["state"] for row in table.seen()] == ["greater"]


def test_a_change_that_is_in_a_fold_twice_is_counted_once(table: FoldedTable) -> None:
    """As with a staging object whose changes wait; no fold takes an object of another fold."""
    first = a_change("counted", (1, 0), 0, tick=1, total=5, hits=1)
    other = a_change("counted", (1, 1), 0, tick=2, total=7, hits=1)
    table.put(first, first)
    table.put(other, other)
    assert [(row["total"], row["hits"], row["tick"]) for row in table.seen()] == [(12, 2, 2)]


def test_a_sum_of_many_changes_takes_no_more_room_than_one_of_few(table: FoldedTable) -> None:
    sizes = []
    for start, count in ((0, 2), (2, 2_000)):
        table.put(*(a_change("counted", (1, n), 0, tick=1, total=1) for n in range(start, start + count)))
        (stored,) = table.of(RecordPart.VISIBLE)
        sizes.append(stored.content_length)
    assert [row["total"] for row in table.seen()] == [2_002]
    assert sizes[1] < 1.1 * sizes[0]


def test_a_sum_comes_back_into_the_range_of_its_column(table: FoldedTable) -> None:
    table.put(*(a_change("counted", n, 0, tick=n, total=2**62, small=20_000) for n in range(4)))
    assert [(row["total"], row["small"]) for row in table.seen()] == [(None, None)]
    table.put(*(a_change("counted", n, 0, tick=n, total=-(2**62), small=-20_000) for n in range(4, 7)))
    assert [(row["total"], row["small"]) for row in table.seen()] == [(2**62, 20_000)]


def test_a_clock_that_is_ahead_wins_its_group_alone(table: FoldedTable) -> None:
    """Lines days ahead are refused at conversion by `accept.future_days`; a smaller lead stays in its group."""
    table.put(a_change("front", 1, 500, page="ahead"), a_change("back", 2, 0, version=1, state="x"))
    table.put(a_change("front", 3, 10, page="now"), a_change("back", 4, 10, version=2, state="y"))
    assert [(row["page"], row["state"]) for row in table.seen()] == [("ahead", "y")]


# --- other definitions


def test_columns_are_added_to_records_and_changes_of_before(table: FoldedTable) -> None:
    full = table.table
    table.table = without_note(full)
    table.put(a_change("front", 1, 0, page="/"))
    waits = table.commit([a_change("front", 2, 1, page="/new")])
    table.table = full
    table.publish([waits])
    table.put(a_change("front", 3, 0, note="late"))
    assert [(row["page"], row["note"]) for row in table.seen()] == [("/new", "late")]


def test_a_new_column_with_the_name_of_a_dropped_one_has_none_of_its_values(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, page="/", note="of before"))
    columns = [replace(item, column_id=99) if item.name == "note" else item for item in table.table.columns]
    table.table = replace(table.table, columns=tuple(columns))
    table.put(a_change("back", 2, 0, version=1, state="x"))
    assert [(row["page"], row["note"], row["state"]) for row in table.seen()] == [("/", None, "x")]


def test_renamed_columns_keep_what_is_known_of_them(table: FoldedTable) -> None:
    table.put(a_change("back", 1, 0, version=2, price=Decimal("1.00")), a_change("counted", 2, 0, tick=1, total=2**62))
    table.put(a_change("counted", 3, 0, tick=1, total=2**62))
    names = {"id": "key_id", "price": "cost", "total": "sum_of_all"}
    table.table = renamed(table.table, names)
    late = a_change("back", 4, 0, version=1, cost=Decimal("9.00"))
    less = a_change("counted", 5, 0, tick=1, sum_of_all=-(2**62))
    table.put(*(replace(change, values={**change.values, "key_id": "a"}) for change in (late, less)))
    ((cost, total),) = [(row["cost"], row["sum_of_all"]) for row in table.stored_seen()]
    assert (cost, total) == (Decimal("1.00"), 2**62)


def renamed(table: TableDefinition, names: dict[str, str]) -> TableDefinition:
    assert table.join is not None
    members = tuple(replace(item, column=names.get(item.column, item.column)) for item in table.join.members)
    columns = tuple(replace(item, name=names.get(item.name, item.name)) for item in table.columns)
    key = tuple(names.get(name, name) for name in table.join.key)
    return replace(table, columns=columns, join=replace(table.join, key=key, members=members))


def without_note(table: TableDefinition) -> TableDefinition:
    assert table.join is not None
    members = tuple(member for member in table.join.members if member.column != "note")
    columns = tuple(column for column in table.columns if column.name != "note")
    return replace(table, columns=columns, join=replace(table.join, members=members))


# --- bad values


def test_changes_without_a_key_a_group_or_a_sequence_are_counted_and_left_out(table: FoldedTable) -> None:
    changes = [
        a_change("front", 1, 0, id=None, page="/"),
        a_change("middle", 2, 0, page="/"),
        a_change("back", 3, 0, version=None, part=None, state="x"),
        a_change("back", 4, 0, version=None, part="m", state="half"),
    ]
    (result,) = table.publish([table.commit(changes)])
    assert (result.changes, result.folded, result.unsequenced) == (4, 4, 3)
    assert [row["state"] for row in table.seen()] == ["half"]


def test_a_key_may_be_long(table: FoldedTable) -> None:
    key = "k" * (1 << 20)
    table.put(a_change("front", 1, 0, id=key, page="/"), a_change("front", 2, 0, id=key[:-1], page="other"))
    table.put(a_change("front", 3, 1, id=key, page="new"))
    assert [(len(row["id"]), row["page"]) for row in table.seen()] == [((1 << 20) - 1, "other"), (1 << 20, "new")]


def test_changes_that_were_not_recorded_are_not_folded(lake: Lake) -> None:
    table = a_folded_table(lake)
    changes = table.commit([a_change("front", 2, 0, page="new")])
    (task,) = table.tasks([changes], after(10**7), None)
    broken = replace(task.changes[0], fingerprint=1, object_id=7)
    result = fold(table, replace(task, changes=(broken,)))
    assert result.failure is not None
    assert broken.key in result.failure.message
    assert not result.failure.transient
    assert [(item.object_id, item.is_changes) for item in result.unread] == [(7, True)]


def test_changes_of_a_bucket_whose_records_were_not_recorded_wait(lake: Lake) -> None:
    table = a_folded_table(lake)
    table.put(a_change("front", 1, 0, page="/"))
    changes = table.commit([a_change("front", 2, 0, page="new"), a_change("front", 3, 0, id=None)])
    (task,) = table.tasks([changes], after(10**7), None)
    (number,) = table.objects
    result = fold(table, replace(task, records=(replace(task.records[0], fingerprint=1),)))
    assert [(item.object_id, item.is_changes) for item in result.unread] == [(number, False)]
    assert (result.failure, result.changes, result.folded, result.pending, result.replaced) == (None, 2, 1, 1, ())
    table.apply(result)
    table.publish()
    assert [row["page"] for row in table.seen()] == ["new"]


def test_records_of_another_bucket_are_not_folded(lake: Lake) -> None:
    table = a_folded_table(lake)
    table.put(a_change("front", 1, 0, page="/"))
    (number,) = table.objects
    table.table = a_join_table(a_join(buckets=4096))
    table.objects[number] = replace(table.objects[number], bucket_number=5)
    (task,) = table.tasks([], START, None)
    moved = table.commit([a_change("front", 2, 0, page="new")])
    buckets = tuple(range(4096))
    result = fold(table, replace(task, buckets=buckets, changes=(moved,), now=after(10**7)))
    assert result.failure is not None
    assert "records of other buckets" in result.failure.message


def fold(table: FoldedTable, task: FoldTask) -> FoldResult:
    return fold_buckets(task, table.table, table.lake.stores, table.lake.lake)
