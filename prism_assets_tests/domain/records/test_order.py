"""The order in which days of records wait for each other."""

from __future__ import annotations

from datetime import date

import pytest

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.records.order import PartitionMove, awaited_day

ELDER, YOUNGER = 1, 2


def a_day(partition_id: int, *, shown: int, wanted: int) -> Partition:
    return Partition(
        partition_id=partition_id,
        table_id=1,
        date=date(2026, 3, partition_id),
        current_version=shown,
        desired_version=wanted,
        last_live_object_id=0,
        switched=True,
        closing_batch_id=0,
        published_object_id=shown,
        last_object_id=0,
    )


@pytest.mark.parametrize(
    ("elder_shown", "younger_shown", "moved", "waits"),
    [
        (3, 3, 4, True),
        (4, 3, 4, False),  # the earlier day shows the record already
        (3, 4, 4, False),  # the later day lost the record already
        (3, -1, 4, False),  # the later day shows no record to lose
        (-1, 3, 4, True),
        (3, 3, 2, False),
    ],
)
def test_a_day_waits_for_another_one_to_which_a_record_moved_that_only_it_shows(
    elder_shown: int, younger_shown: int, moved: int, waits: bool
) -> None:
    elder, younger = a_day(ELDER, shown=elder_shown, wanted=5), a_day(YOUNGER, shown=younger_shown, wanted=5)
    moves = [PartitionMove(fold_id=moved, from_id=YOUNGER, to_id=ELDER)]
    due = {ELDER: elder, YOUNGER: younger}
    assert awaited_day(younger, due, moves) == (elder.date if waits else None)
    assert awaited_day(elder, due, moves) is None
    assert awaited_day(younger, {YOUNGER: younger}, moves) is None
