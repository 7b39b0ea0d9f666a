"""Readers who do not wait for folds see the model's result of all committed changes, at any moment of a history."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from prism_assets.domain.names import DAY_COLUMN as DAY
from prism_assets.domain.records.folding import RecordPart, UnfoldedChanges
from prism_assets.domain.records.joins import DELETE
from prism_assets.domain.records.model import Change, Record
from prism_assets.kernels.records import current
from prism_assets.kernels.records.current import current_records
from prism_assets_tests.kernels.builders import Lake
from prism_assets_tests.kernels.records.builders import (
    START,
    START_MS,
    FoldedTable,
    a_change,
    a_join,
    a_join_table,
    a_model,
    as_rows,
    in_order,
)
from prism_assets_tests.kernels.records.histories import History, Sent, random_join, spans

Rows = list[dict[str, Any]]


def seen_now(table: FoldedTable, changes: list[UnfoldedChanges]) -> tuple[Rows, list[date]]:
    """Returns the visible records and their days, in order of keys and times."""
    (task,) = table.tasks(changes, START, None)
    found = current_records(task, table.table, table.lake.stores)
    rows = [row for merged in found.merged for row in _rows(merged)]
    for item in table.of(RecordPart.VISIBLE):
        if item.object_id not in found.replaced:
            rows += [{**table.as_seen(row), DAY: item.date} for row in table.rows(item)]
    rows = in_order(rows)
    return [{name: value for name, value in row.items() if name != DAY} for row in rows], [row[DAY] for row in rows]


def _rows(merged: pa.Table) -> Rows:
    """Instants as milliseconds."""
    for place, column in enumerate(merged.schema):
        if pa.types.is_timestamp(column.type):
            instants = merged[column.name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
            merged = merged.set_column(place, column.name, instants)
    rows: Rows = merged.to_pylist()
    return rows


@dataclass
class ReadHistory(History):
    """A history with a reader after every commit and fold."""

    committed: list[Change] = field(default_factory=list)
    waiting: list[Sent] = field(default_factory=list)
    reads: int = 0

    def _commit(self, item: Sent) -> None:
        super()._commit(item)
        self.committed += item.changes
        self.waiting.append(item)
        self._look()

    def _fold(self, *args: Any, **more: Any) -> None:
        super()._fold(*args, **more)
        self._look()

    def _look(self) -> None:
        self.waiting = [item for item in self.waiting if item.number >= 0]
        stored = [item.stored for item in self.waiting if item.stored is not None]
        self.reads += 1
        seen, days = seen_now(self.table, stored)
        self.differs |= seen != self.current
        if not self.differs and not stored and not self.table.of(RecordPart.PENDING):
            self.differs |= days != self._days_of_objects()

    def _days_of_objects(self) -> list[date]:
        rows = [{**row, DAY: item.date} for item in self.table.of(RecordPart.VISIBLE) for row in self.table.rows(item)]
        return [row[DAY] for row in in_order(rows)]

    @property
    def current(self) -> Rows:
        """Returns the records of all commits, except those a fold deleted."""
        join = self._definition.join
        assert join is not None
        model, clock = a_model(self._definition), START_MS + self.settled_before * 1_000
        folded = model.records_of(self.taken)

        def is_there(record: Record) -> bool:
            if join.after != DELETE or not any(spans(record, one) for one in folded if one.key == record.key):
                return True
            settles = model.settles_at(record)
            return settles is None or settles >= clock

        return as_rows(model.records_of(self.committed), is_there)


AT_ONCE = 5


@pytest.mark.parametrize("portion", range(40))
def test_readers_see_all_that_is_committed_at_any_moment(tmp_path: Path, portion: int, long: bool) -> None:
    if portion > 1 and not long:
        pytest.skip("hundreds of histories: with --long")
    differing = []
    for seed in range(portion * AT_ONCE, (portion + 1) * AT_ONCE):
        history = a_history_with_reads(tmp_path / str(seed), seed)
        history.run()
        assert history.reads > 3
        if history.differs:
            differing.append(seed)
    assert differing == []


def test_tombstones_are_needed(tmp_path: Path) -> None:
    """A null control: else these histories would prove nothing."""
    history = a_history_with_reads(tmp_path, FORGETFUL)
    history.table.forget_hidden = True
    history.run()
    assert history.differs


FORGETFUL = 2


def a_history_with_reads(folder: Path, seed: int) -> ReadHistory:
    folder.mkdir(exist_ok=True)
    return ReadHistory(seed, FoldedTable(Lake(folder), a_join_table(random_join(random.Random(-seed)))))


@pytest.fixture
def table(tmp_path: Path) -> FoldedTable:
    return FoldedTable(Lake(tmp_path), a_join_table(a_join(buckets=1)))


def test_a_record_that_a_change_bridges_over_midnight_shows_once_under_the_earlier_day(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 3_300, page="x"), a_change("front", 2, 3_950, page="y"))
    assert seen_now(table, [])[1] == [date(2026, 3, 8), date(2026, 3, 9)]
    waiting = table.commit([a_change("back", 3, 3_650, version=1, state="u")])
    (row,), days = seen_now(table, [waiting])
    assert (row["page"], row["state"], days) == ("y", "u", [date(2026, 3, 8)])
    assert table.of(RecordPart.PENDING) == []


def test_a_hidden_record_wins_over_a_change_that_is_older_and_is_never_shown(table: FoldedTable) -> None:
    table.put(a_change("back", 1, 0, version=3, deleted=True))
    older = table.commit([a_change("back", 2, 1, version=2, state="u")])
    assert seen_now(table, [older])[0] == []
    newer = table.commit([a_change("back", 3, 2, version=4, state="v")])
    assert [row["state"] for row in seen_now(table, [older, newer])[0]] == ["v"]


def test_only_record_files_that_changes_touch_are_merged(table: FoldedTable) -> None:
    table.put(a_change("front", 1, 0, page="x"), a_change("front", 2, 7_200, page="y"))
    waiting = table.commit([a_change("back", 3, 1, version=1, state="u")])
    (task,) = table.tasks([waiting], START, None)
    found = current_records(task, table.table, table.lake.stores)
    assert [merged.num_rows for merged in found.merged] == [1]
    assert len(found.replaced) == 1
    (still,) = table.tasks([], START, None)
    assert current_records(still, table.table, table.lake.stores).merged == ()


def test_what_is_too_much_for_memory_lies_on_disk(table: FoldedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = table.commit([a_change("front", number, 700.0 * number, page="x") for number in range(9)])
    before = seen_now(table, [waiting])
    assert len(before[0]) == 9
    monkeypatch.setattr(current, "IN_MEMORY", 0)
    assert seen_now(table, [waiting]) == before
