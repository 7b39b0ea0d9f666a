"""Kills processes while tables of one prefix divide its lines, change their routes, and rebuild the day together."""

from __future__ import annotations

from prism_assets_tests.crash import sweep
from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.crash.sweep import Case

SEEDS = (1, 2, 3)
POINTS = ("discover.in_page", "stream.in_commit", "apply.after_deal", "rebuild.before_commit")
"""Deaths of the short form: the last time that a life comes there."""


def cases(fleet: Fleet, *, long: bool) -> list[Case]:
    """Returns deaths at some points, or in the long form of several lives at all."""
    counted = sweep.hits(fleet, SEEDS if long else SEEDS[:1], ["grouped"])
    found = [
        Case(life, seed, point, hit, "kill9")
        for (life, seed), counts in counted.items()
        for point, count in counts.items()
        for hit in sorted({1, count} if long else {count})
    ]
    return found if long else [case for case in found if case.point in POINTS]


def test_each_line_is_in_one_table_of_its_prefix_wherever_a_process_dies(fleet: Fleet, long: bool) -> None:
    """The balance is right just after the death, and at rest each table has its rows."""
    wanted = cases(fleet, long=long)
    assert {case.point for case in wanted} >= {*POINTS}
    verdicts = list(sweep.sweep(fleet, wanted))
    assert [str(verdict.case) for verdict in verdicts if not verdict.happened] == []
    assert {str(verdict.case): verdict.violations for verdict in verdicts if verdict.violations} == {}
