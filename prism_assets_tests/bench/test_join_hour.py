"""The hour of a join table: its traffic, and readers that check every required row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bench.join_hour import GROUPS, SOON, Watcher, ages, changes_of


class Shown:
    """A reader of given rows."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.table = pa.Table.from_pylist([dict.fromkeys(GROUPS) | row for row in rows], _SCHEMA)

    def rows(self, name: str) -> pa.Table:
        assert name == "bench.visit"
        return self.table


_SCHEMA = pa.schema([pa.field("id", pa.int64()), *(pa.field(group, pa.string()) for group in GROUPS)])
FIRST = {"id": 1, "front": "seen"}


def test_each_record_has_a_change_of_every_group_most_of_them_soon() -> None:
    found = changes_of(1, 1_000, 3_600.0)
    births: dict[int, float] = {}
    later = []
    for time, (number, _) in found:
        if number in births:
            later.append(time - births[number])
        births.setdefault(number, time)
    assert len({change for _, change in found}) == len(found)
    assert len(births) == 1_000
    assert found == sorted(found)
    assert found[-1][0] < 3_600.0
    assert 0.9 < sum(age < SOON for age in later) / len(later) < 1


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ([FIRST], [FIRST, {"id": 1, "back": "too"}], "a record was there twice"),
        ([FIRST, {"id": 2, "back": "seen"}], [FIRST], "1 changes were seen and are gone, such as (2, 'back')"),
        (
            [FIRST | {"back": "seen"}],
            [FIRST],
            "1 changes were seen and are gone, such as (1, 'back')",
        ),
        ([FIRST], [FIRST | {"back": "new"}], None),
    ],
)
def test_a_reader_misses_no_row_that_is_doubled_or_goes(
    before: list[dict[str, Any]], after: list[dict[str, Any]], fault: str | None
) -> None:
    shown = [Shown(*before), Shown(*after)]
    watcher = Watcher("Glue", lambda: shown[watcher.looks])
    watcher.look()
    watcher.look()
    assert watcher.faults == ([f"Glue: {fault}"] if fault else [])


def test_what_nobody_has_seen_is_as_old_as_it_may_be() -> None:
    watcher = Watcher("Glue", Shown, seen={(1, "front"): 30.0})
    arrived = {(1, "front"): 10.0, (2, "front"): 100.0, (3, "front"): 4_999.0}
    assert ages(watcher, arrived, 5_000.0) == "p50 2460 s, p90 4412 s, p99 4851 s, most 4900 s"
