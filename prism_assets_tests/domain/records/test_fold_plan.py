"""Which record files a fold writes anew, and which changes wait."""

from __future__ import annotations

import pytest

from prism_assets.domain.records.fold_plan import (
    DIRTY,
    LINKED,
    NEW,
    SETTLES,
    STALE,
    RecordFile,
    files_to_write,
    write_reason,
)
from prism_assets.domain.records.joins import PublishPolicy

POLICY = PublishPolicy(every_seconds=300, dirty=0.1, stale_seconds=3_600)
WAITS = RecordFile(rows=100, touched=1, waited_seconds=10)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (RecordFile(rows=0, touched=1), NEW),
        (RecordFile(rows=100, touched=10), DIRTY),
        (RecordFile(rows=100, touched=9), None),
        (RecordFile(rows=100, touched=9, waited_seconds=3_599.9), None),
        (RecordFile(rows=100, touched=9, waited_seconds=3_600), STALE),
        (RecordFile(rows=100, touched=0), None),
        (RecordFile(rows=100, touched=0, settles=True), SETTLES),
    ],
)
def test_a_record_file_is_written_anew(file: RecordFile, reason: str | None) -> None:
    assert write_reason(POLICY, file) == reason


def test_a_record_that_spans_record_files_moves_at_once() -> None:
    new = RecordFile(rows=0, touched=1)
    assert files_to_write(POLICY, [WAITS, WAITS, new, WAITS], [(0, 1), (1, 2)]) == {0: LINKED, 1: LINKED, 2: NEW}


def test_record_files_that_are_linked_wait_together() -> None:
    assert files_to_write(POLICY, [WAITS, WAITS], [(0, 1)]) == {}
