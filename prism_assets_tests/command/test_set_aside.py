"""A run that quarantines most lines reports this at its end with the setting to change, and fails."""

from __future__ import annotations

import pytest

from prism_assets.stages.checks.intake import QUARANTINE_RATE
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.stages.test_checks import check

NOON = "2026-03-01T12:00"
TOLD = (
    "log.events: 30 of 40 lines are quarantined, more than half (30 too_old). accept: {past_days: 21} in its table "
    "file is too short for their dates; then `prism quarantine replay log.events` makes rows of them"
)


@pytest.fixture
def history(prism: Prism) -> Prism:
    """A table, and objects with three quarters of their rows from the year before."""
    prism.world.apply(a_table())
    for start in ("2025-03-01T12:00", "2025-03-02T12:00", NOON, "2025-03-03T12:00"):
        prism.world.drop(some_rows(10, utc(start)))
    return prism


def test_a_stream_whose_lines_are_mostly_too_old_ends_with_the_setting_to_change(history: Prism) -> None:
    history.ok("discover", "--now", f"{NOON}:00Z")
    done = history("stream", "--now", f"{NOON}:00Z")
    assert done.status == 1
    assert done.err.splitlines()[-1].endswith(f"left for a person: {TOLD}")


@pytest.mark.parametrize("words", [("run",), ("run", "--until-idle")])
def test_a_run_ends_so_too_and_what_follows_says_it_no_more(history: Prism, words: tuple[str, ...]) -> None:
    done = history(*words, "--now", f"{NOON}:00Z")
    assert done.status == 1
    assert done.err.splitlines()[-1].endswith(f"left for a person: {TOLD}")
    again = history(*words, "--now", f"{NOON}:00Z")
    assert (again.status, again.err) == (0, ""), "it set nothing aside; status and the check go on to say it"


def test_status_and_the_check_say_it_with_the_setting(history: Prism) -> None:
    history("run", "--now", f"{NOON}:00Z")
    assert TOLD.replace("40 lines", "40 lines of the last 7 days") in history.ok("status").out
    outcome = check(history.world, QUARANTINE_RATE, NOON)
    assert not outcome.passed
    assert "That is more than half: accept: {past_days: 21} in its table file is too short" in outcome.sentence


def test_half_of_the_lines_is_not_most_of_them(prism: Prism) -> None:
    prism.world.apply(a_table())
    prism.world.drop([*some_rows(5, utc("2025-03-01T12:00")), *some_rows(5, utc(NOON))])
    prism.ok("run", "--now", f"{NOON}:00Z")
    assert "more than half" not in prism.ok("status").out


def test_the_lines_become_rows_as_the_sentence_says(history: Prism) -> None:
    history("run", "--now", f"{NOON}:00Z")
    history.world.apply(a_table(accept="{past_days: 400, from: arrival}"))
    history.ok("quarantine", "replay", "log.events", "--now", f"{NOON}:00Z")
    history("run", "--now", f"{NOON}:00Z")
    assert len(history.world.ids()) == 40
