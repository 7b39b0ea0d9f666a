"""When checks are reported: changes at once, continuing failures once a day, and every check at some time."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone

import pytest

from prism_assets.defs.sensors.reported import Reported
from prism_assets.defs.sensors.turns import in_turn
from prism_assets.stages.checks.outcomes import CheckOutcome

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
TICK = timedelta(minutes=10)
TABLES = [f"log.t{number:03}" for number in range(300)]
CHECKS = ["a", "b", "c", "d", "e", "f"]
PRESENT = {(table, check) for table in TABLES for check in CHECKS}
MOST = 100


def outcomes(failing: Collection[str], check: str = "a", tables: Sequence[str] = TABLES) -> list[CheckOutcome]:
    """One check of all tables, failing for some."""
    return [CheckOutcome(table=table, check=check, passed=table not in failing, sentence="") for table in tables]


class Ticks:
    """One tick after the other, each with the cursor of the one before."""

    def __init__(self) -> None:
        self.now = NOW
        self.cursor: str | None = None

    def __call__(self, found: list[CheckOutcome]) -> list[tuple[str, bool]]:
        """Returns the reports of a tick, in order."""
        reported = Reported.read(self.cursor)
        told = reported.due(found, self.now)[:MOST]
        self.cursor = reported.told(told, self.now, PRESENT).write()
        self.now += TICK
        return [(item.table, item.passed) for item in told]


def test_what_fails_is_told_once_and_then_once_a_day_in_turn() -> None:
    tick, told = Ticks(), []
    for _ in range(3):
        told += tick(outcomes(TABLES))
    assert told == [(table, False) for table in TABLES]
    quiet = [tick(outcomes(TABLES)) for _ in range(140)]
    assert sum(map(len, quiet)) == 0
    tick.now = NOW + timedelta(days=1)
    again = [tick(outcomes(TABLES)) for _ in range(4)]
    assert again == [told[:100], told[100:200], told[200:], []]


def test_changes_go_before_what_was_told_already() -> None:
    tick = Ticks()
    for _ in range(4):
        tick(outcomes(TABLES[:250]))
    tick.now += timedelta(days=2)
    told = tick(outcomes(TABLES[20:280]))
    assert told[:30] == [(table, False) for table in TABLES[250:280]], "newly failing"
    assert told[30:50] == [(table, True) for table in TABLES[:20]], "recovered"
    assert told[50:] == [(table, False) for table in TABLES[20:70]], "those that were told first"


def test_a_new_check_is_told_while_others_fail_for_long() -> None:
    tick = Ticks()
    for _ in range(3):
        tick(outcomes(TABLES))
    tick.now += timedelta(days=2)
    told = tick([*outcomes(TABLES), *outcomes((), "b", TABLES[:5])])
    assert told[:5] == [(table, True) for table in TABLES[:5]]


def test_a_clock_that_went_wrong_silences_nothing() -> None:
    tick = Ticks()
    tick.now += timedelta(days=400)
    assert len(tick(outcomes(TABLES[:3], tables=TABLES[:3]))) == 3
    tick.now = NOW
    assert len(tick(outcomes(TABLES[:3], tables=TABLES[:3]))) == 3


def test_the_cursor_is_small_and_forgets_tables_that_are_gone() -> None:
    whole = [item for check in CHECKS for item in outcomes((), check)]
    passed = Reported().told(whole, NOW, PRESENT)
    assert len(passed.write()) < 5_000
    failed = Reported().told([item for check in CHECKS for item in outcomes(TABLES, check)], NOW, PRESENT)
    assert len(failed.write()) < 60_000
    assert Reported.read(failed.write()) == failed
    left = failed.told((), NOW, {(TABLES[0], check) for check in CHECKS[:2]})
    assert left.known == left.failed.keys() == {("log.t000", "a"), ("log.t000", "b")}, "no check that a table lost"


@pytest.mark.parametrize("cursor", [None, "", json.dumps({"known": ["log.a a"], "failed": ["log.a a"], "after": "x"})])
def test_a_cursor_of_another_form_is_as_good_as_none(cursor: str | None) -> None:
    assert Reported.read(cursor) == Reported()


def test_a_cursor_from_before_there_were_two_catalogs_keeps_what_was_told() -> None:
    told = Reported().told(outcomes(TABLES[:3]), NOW, PRESENT)
    document = {**json.loads(told.write()), "after": "log.t001"}
    assert Reported.read(json.dumps(document)) == told


def test_turns_go_all_the_way_round() -> None:
    assert in_turn(CHECKS, "c") == ["c", "d", "e", "f", "a", "b"]
    assert in_turn(CHECKS, "gone") == CHECKS
