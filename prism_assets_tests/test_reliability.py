"""The report of the long forms: a newly played part replaces its row."""

from __future__ import annotations

from pathlib import Path

from prism_assets_tests.reliability import CONTROLS, Figure, Figures, report


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each row, but the last one, by the first."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return {first: rest[:-1] for first, *rest in cells}


def test_a_part_that_is_played_again_replaces_its_rows_and_no_other() -> None:
    before = report(
        [
            Figure("Crash sweep", {"sigkills": 2_000}),
            Figure("S3 faults", {"cells": 7}, ["I1 two rows are missing"]),
            Figure(CONTROLS, violations=["two rows are missing"], control="the locks"),
            Figure(CONTROLS, violations=["red"], control="the fences"),
        ]
    )
    now = report(
        [
            Figure("S3 faults", {"cells": 3}),
            Figure("S3 faults", {"cells": 5}),
            Figure(CONTROLS, control="the fences"),
        ],
        before,
    )
    assert rows(before)["S3 faults"] == ["7 cells", "1", "0", "0", "0", "0", "0"]
    assert rows(now) == {
        **rows(before),
        "S3 faults": ["8 cells", "0", "0", "0", "0", "0", "0"],
        "the fences": ["**nothing**"],
    }
    assert report([], now) == now


def test_a_stopped_run_goes_on_after_the_cases_that_passed(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "figures")
    assert figures.passed("Crash sweep") == {}
    figures.note("Crash sweep", case="days/1: the first", looks=7)
    figures.note("Crash sweep", ["I1 a row is missing"], case="days/1: the second", looks=7)
    figures.note("S3 faults", case="days/1: the third", looks=7)
    assert Figures(tmp_path / "figures").passed("Crash sweep") == {"days/1: the first": {"looks": 7}}
