"""Random histories with rebuilds at random times: the same records, and no difference without a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from prism_assets.domain.records.folding import RecordMove
from prism_assets.domain.records.joins import DELETE
from prism_assets.domain.records.rebuild import rebuild_tasks
from prism_assets.kernels.records.rebuilding import rebuild_records
from prism_assets_tests.kernels.builders import Lake
from prism_assets_tests.kernels.records.builders import START, WINDOW, FoldedTable, a_change, a_join, a_join_table
from prism_assets_tests.kernels.records.histories import History, Rebuilds, a_history

AT_ONCE = 4
MORE_PORTIONS = range(2, 300)
BEFORE_MIDNIGHT = 2_400.0
"""Seconds behind the start of histories: then records are born on either side of midnight."""
TO_MIDNIGHT = 3_600
"""Seconds from START to the first midnight in the table's zone."""


def lived(tmp_path: Path, seeds: range, rebuilds: Rebuilds, **more: Any) -> Iterator[History]:
    """Played histories, each in its own lake."""
    for seed in seeds:
        with TemporaryDirectory(dir=tmp_path) as folder:
            history = replace(a_history(Lake(Path(folder)), seed, **more), rebuilds=rebuilds, begins=BEFORE_MIDNIGHT)
            history.run()
            yield history


def seeds_of(portion: int) -> range:
    return range(portion * AT_ONCE, (portion + 1) * AT_ONCE)


def differing(histories: Iterator[History]) -> list[int]:
    return [history.seed for history in histories if history.differs]


def test_rebuilt_records_are_those_that_were_folded(tmp_path: Path) -> None:
    histories = list(lived(tmp_path, seeds_of(1), Rebuilds()))
    assert differing(iter(histories)) == []
    assert min(sum(history.compared for history in histories), sum(history.rebuilt for history in histories)) > AT_ONCE


@pytest.mark.parametrize("portion", MORE_PORTIONS)
def test_rebuilt_records_are_those_that_were_folded_in_many_histories(tmp_path: Path, portion: int, long: bool) -> None:
    if not long:
        pytest.skip("many histories: with --long")
    assert differing(lived(tmp_path, seeds_of(portion), Rebuilds())) == []


def test_records_of_which_the_log_lacks_changes_are_told(tmp_path: Path) -> None:
    table = FoldedTable(Lake(tmp_path), a_join_table(a_join()))
    table.put(a_change("front", 1, 0, page="x"))
    table.put(a_change("front", 2, 60, page="y"))
    (task,) = table.compare(None)[0]
    for changes, orphans in ((task.changes, 0), (task.changes[1:], 1), (task.changes[:1], 0), ((), 1)):
        result = rebuild_records(replace(task, changes=changes), table.table, table.lake.stores, table.lake.lake)
        assert (result.failure, result.orphans) == (None, orphans)


def test_each_task_checks_the_objects_that_it_reads_alone(tmp_path: Path) -> None:
    table = FoldedTable(Lake(tmp_path), a_join_table(a_join(buckets=16)))
    table.put(*(a_change("front", number, 0, id=f"k{number}", page="x") for number in range(40)))
    (task,) = table.compare(None)[0]
    for item in task.records:
        other = replace(item, fingerprint=item.fingerprint ^ 1)
        alone = replace(task, buckets=(item.bucket_number,), records=(other,))
        result = rebuild_records(alone, table.table, table.lake.stores, table.lake.lake)
        assert [unread.object_id for unread in result.unread] == [item.object_id]


@pytest.mark.parametrize("lost", range(2), ids=["elder", "younger"])
def test_a_record_that_a_change_bridges_is_of_its_first_day_whichever_part_is_lost(tmp_path: Path, lost: int) -> None:
    table = FoldedTable(Lake(tmp_path), a_join_table(a_join(buckets=1)))
    table.put(a_change("front", 1, TO_MIDNIGHT - 300, page="x"))
    table.put(a_change("front", 2, TO_MIDNIGHT + 500, page="y"))
    first, second = sorted(table.objects.values(), key=lambda item: item.date)
    assert first.date < second.date
    table.taken.append(table.commit([a_change("front", 3, TO_MIDNIGHT + 100, page="z")]))
    gone = {(first, second)[lost].object_id}
    (task,) = rebuild_tasks(table.table, [first, second], table.taken, lost=gone)
    result = table.remake(replace(task, fold_id=9, days=(first.date, second.date)))
    assert [(item.date, item.row_count) for item in result.written] == [(first.date, 1)]
    assert result.moves == (RecordMove(from_date=second.date, to_date=first.date),)


@pytest.mark.parametrize("settled", [False, True])
def test_a_record_of_a_lost_object_is_there_though_the_day_of_its_first_event_expired(
    tmp_path: Path, settled: bool
) -> None:
    table = FoldedTable(Lake(tmp_path), a_join_table(a_join(buckets=1)))
    table.put(a_change("front", 1, 0, page="old"))
    table.put(a_change("front", 2, TO_MIDNIGHT + 300, page="y"))
    table.put(a_change("back", 3, TO_MIDNIGHT - 200, version=1))
    clock = START + timedelta(seconds=TO_MIDNIGHT * 2) if settled else None
    if settled:
        table.publish((), clock)
    old, moved = sorted(table.objects.values(), key=lambda item: item.date)
    assert (old.is_settled, moved.is_settled) == (settled, settled)
    planned = rebuild_tasks(
        table.table, [moved], table.taken, lost={moved.object_id}, settle_before=clock, expired_day=old.date
    )
    result = table.remake(replace(planned[0], fold_id=9, days=(old.date, moved.date)))
    there = {item.date: item.row_count for item in result.written}
    assert (there, result.expired) == ({moved.date: 1} if settled else {old.date: 1, moved.date: 1}, int(settled))


# Null controls: without one of the two facts a rebuild has besides the changes, histories differ.


def test_what_has_settled_must_be_known(tmp_path: Path) -> None:
    rebuilds = Rebuilds(forgets_clock=True)
    assert differing(lived(tmp_path, range(4, 5), rebuilds, window_seconds=WINDOW, after=DELETE))


def test_the_days_of_records_that_are_there_must_be_known(tmp_path: Path) -> None:
    assert differing(lived(tmp_path, range(7, 8), Rebuilds(forgets_days=True)))
