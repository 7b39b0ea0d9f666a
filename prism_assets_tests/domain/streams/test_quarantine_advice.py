"""The setting to change for each reason for which lines are set aside."""

from __future__ import annotations

import pytest

from prism_assets.domain.findings import Acts
from prism_assets.domain.streams import reasons
from prism_assets.domain.streams.quarantine_advice import advice_of, are_mostly_quarantined, find_mostly_quarantined
from prism_assets.domain.tables.file import parse_table_file
from prism_assets_tests.builders import a_table

TABLE = parse_table_file(
    a_table(accept="{past_days: 5, future_days: 2}") + "reject: [{when: 'id = 1', reason: test_row}]\n", "t.yaml"
)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (reasons.TOO_OLD, "accept: {past_days: 5} in its table file"),
        (reasons.TOO_NEW, "accept: {future_days: 2} in its table file"),
        (reasons.TOO_LATE, "lateness"),
        (reasons.MISSING_TIME, "correct the source of column time"),
        (reasons.BAD_TIME, "time_unit and source_offset of column time"),
        (reasons.NULL_IN_REQUIRED, "remove `required` from"),
        (reasons.UNDEFINED_FIELD, "new_fields: freeze"),
        (reasons.MISFIT, "misfits: quarantine"),
        (reasons.BAD_JSON, "prism table try"),
        ("test_row", "`reject` with the reason test_row"),
        (reasons.TRUNCATED, "`prism quarantine list --table log.events`"),
    ],
)
def test_each_reason_has_the_setting_that_decides_about_it(reason: str, words: str) -> None:
    advice = advice_of(TABLE, reason)
    assert words in advice
    assert "`prism quarantine replay log.events` makes rows of them" in advice


def test_the_most_frequent_reason_decides_which_setting_is_named() -> None:
    counts = [("too_new", 1), ("too_old", 5), ("bad_json", 3), ("misfit", 1)]
    found = find_mostly_quarantined(TABLE, 12, counts, acts=Acts.PERSON)
    assert str(found) == (
        "log.events: 10 of 12 lines are quarantined, more than half (5 too_old, 3 bad_json, 1 misfit). accept: "
        "{past_days: 5} in its table file is too short for their dates; then `prism quarantine replay log.events` "
        "makes rows of them"
    )
    assert find_mostly_quarantined(TABLE, 20, counts, acts=Acts.PERSON) is None
    assert find_mostly_quarantined(TABLE, 0, [], acts=Acts.PERSON) is None


def test_more_than_half_is_most() -> None:
    assert [are_mostly_quarantined(10, count) for count in (0, 5, 6, 10)] == [False, False, True, True]
    assert not are_mostly_quarantined(0, 0)
