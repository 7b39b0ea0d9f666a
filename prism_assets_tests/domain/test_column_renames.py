"""When a renamed column is shown by its new name: by what is left of before, and by how long readers may look back."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from prism_assets.domain.column_renames import ColumnRename, RenameFacts, RenameLeft, RenameState, next_step
from prism_assets_tests.builders import utc

BEGUN = utc("2026-03-01T12:00")
LEASE, GRACE = timedelta(hours=4), timedelta(days=30)
LEFT = RenameLeft(merged=2, small=1, staging=3, days=1, first_day=date(2026, 2, 1), last_day=date(2026, 2, 3))


@pytest.mark.parametrize(
    ("state", "left", "shown", "hours", "told"),
    [
        (
            RenameState.REWRITING,
            LEFT,
            True,
            999,
            "objects of before are left: 2 merged objects to be rewritten, 1 small object to be merged, 3 staging "
            "objects to be converted that were claimed before, 1 day to be published, of 2026-02-01 to 2026-02-03",
        ),
        (RenameState.REWRITING, RenameLeft(), False, 0, RenameState.SETTLING),
        (RenameState.SETTLING, RenameLeft(), True, 3.9, "readers may use objects of before until 2026-03-01 16:00Z"),
        (RenameState.SETTLING, RenameLeft(), False, 4, RenameState.BOTH),
        (RenameState.BOTH, RenameLeft(), False, 9_999, "the next catalog run is to show it"),
        (RenameState.BOTH, RenameLeft(), True, 719, "Glue shows both names until 2026-03-31 12:00Z"),
        (RenameState.BOTH, RenameLeft(), True, 720, RenameState.ENDING),
        (RenameState.ENDING, RenameLeft(), False, 9_999, "the next catalog run is to show it"),
        (RenameState.ENDING, RenameLeft(), True, 3, "readers may use the former name until 2026-03-01 16:00Z"),
        (RenameState.ENDING, RenameLeft(), True, 4, None),
    ],
)
def test_a_state_ends_when_no_reader_would_miss_a_value(
    state: RenameState, left: RenameLeft, shown: bool, hours: float, told: RenameState | str | None
) -> None:
    rename = ColumnRename(former="uid", state=state, version=2, since=3)
    facts = RenameFacts(since=BEGUN, left=left, is_shown=shown)
    step = next_step(rename, facts, BEGUN + timedelta(hours=hours), reader_lease=LEASE, grace=GRACE)
    assert step.is_due == (not step.reason)
    assert (step.to if step.is_due else step.reason) == told
