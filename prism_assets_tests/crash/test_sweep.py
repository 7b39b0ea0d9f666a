"""Ends lives at each failpoint: at the first hit, the second and the last, by SIGKILL and by an error.

The long form runs lives of many seeds until two thousand processes are killed. The short one kills every sixtieth
point, every sixth of Iceberg's and all of the hardest at their last hits, and raises errors at the second hit of every
sixth of these.

The long form of hours can be played in pieces: it goes on after the cases in the file of figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from prism_assets_tests.crash import sweep
from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.crash.sweep import KINDS, MORE_KINDS, Case, Verdict
from prism_assets_tests.reliability import Figures

AREA = "Crash sweep"
SEED = 1
LONG_KILLS = 2_000
# Published manifests, the switch, an extended range, late rows of a closed day: a sweep without them proves nothing.
HARDEST = {
    "catalog.before_manifest",
    "catalog.after_manifest",
    "catalog.after_publish",
    "catalog.after_advance",
    "catalog.after_switch",
    "catalog.after_mark",
    "catalog.after_close",
    "merge.in_commit",
    "stream.in_commit",
    "repair.in_commit",
    "receive.in_commit",
    "iceberg.after_commit",
    "iceberg.in_record",
}

RAISED = set(sorted(HARDEST)[::6])
"""Where the short form raises errors."""

Hits = dict[tuple[str, int], Counter[str]]


def short_points() -> set[str]:
    """Returns the points of the short form."""
    points = sorted(sweep.points_in_sources())
    return {*points[::60], *[point for point in points if point.startswith("iceberg.")][::6], *HARDEST}


def of_other_ways(hits: Hits, *, long: bool) -> list[Case]:
    """Returns deaths at points reached first by other lives: with groups, symlinks, wider types or nested rows.

    The short form takes every sixtieth of them.
    """
    found = []
    stages_of = {
        "grouped": ("discover.", "stream.", "apply.", "rebuild."),
        "linked": ("catalog.",),
        "flipped": ("catalog.", "merge.", "stream.", "iceberg."),
        "parts": ("stream.", "merge.", "catalog.", "iceberg.", "repair.", "rebuild.", "erase."),
    }
    for life, stages in stages_of.items():
        theirs = {key: counts for key, counts in hits.items() if key[0] == life}
        which = (1, 2, -1) if long else (-1,)
        found += [case for case in sweep.cases(theirs, ("kill9",), which) if case.point.startswith(stages)]
    return found if long else found[::60]


@pytest.fixture(scope="module")
def hits(fleet: Fleet) -> Hits:
    """The hits of each failpoint in undisturbed lives."""
    return sweep.hits(fleet, [SEED])


def batches(fleet: Fleet, hits: Hits, *, long: bool) -> Iterator[list[Case]]:
    """Returns the cases, those of one seed after those of another."""
    if not long:
        points = short_points()
        kills = [case for case in sweep.cases(hits, ("kill9",), (-1,)) if case.point in points]
        kills += [case for case in of_other_ways(hits, long=False) if case not in kills]
        yield [*kills, *(case for case in sweep.cases(hits, ("raise",), (2,)) if case.point in RAISED)]
        return
    found = [*sweep.cases(hits, KINDS, (1, 2, -1)), *sweep.cases(hits, MORE_KINDS, (1,))]
    found += [case for case in of_other_ways(hits, long=True) if case not in found]
    seed, kills_left = SEED, LONG_KILLS
    while True:
        yield found
        kills_left -= sum(case.kind == "kill9" for case in found)
        if kills_left <= 0:
            return
        seed += 1
        found = sweep.cases(sweep.hits(fleet, [seed]), ("kill9",), (1, 2, -1))


@pytest.fixture(scope="module")
def swept(fleet: Fleet, hits: Hits, figures: Figures, long: bool) -> tuple[list[Case], list[Verdict]]:
    """The cases and their verdicts. Cases that an earlier run has noted without a violation are not played again."""
    passed = figures.passed(AREA)
    wanted, found = list[Case](), list[Verdict]()
    for batch in batches(fleet, hits, long=long):
        wanted += batch
        found += [Verdict(case, True, [], looks=passed[str(case)]["looks"]) for case in batch if str(case) in passed]
        for verdict in sweep.sweep(fleet, [case for case in batch if str(case) not in passed]):
            found.append(verdict)
            killed = int(verdict.case.kind == "kill9")
            case = str(verdict.case)
            said = [f"{violation} ({case})" for violation in verdict.violations]
            figures.note(AREA, said, case=case, sigkills=killed, errors=1 - killed, looks=verdict.looks)
    return wanted, found


@pytest.fixture(scope="module")
def wanted(swept: tuple[list[Case], list[Verdict]]) -> list[Case]:
    return swept[0]


@pytest.fixture(scope="module")
def verdicts(swept: tuple[list[Case], list[Verdict]]) -> list[Verdict]:
    return swept[1]


def test_lives_reach_every_failpoint_of_the_sources(hits: Hits) -> None:
    reached = {point for counts in hits.values() for point in counts}
    assert sweep.points_in_sources() - reached == set(), "give a life what reaches them"
    assert reached == sweep.points_in_sources()


def test_points_are_swept_at_their_last_hits_and_in_the_long_form_all_at_first_second_and_last(
    hits: Hits, wanted: list[Case], long: bool
) -> None:
    for kind in KINDS:
        swept = {(case.life, case.point, case.hit) for case in wanted if case.kind == kind and case.seed == SEED}
        points = {point for _, point, _ in swept}
        killed = short_points() | {case.point for case in of_other_ways(hits, long=long)}
        wanted_points = sweep.points_in_sources() if long else killed if kind == "kill9" else RAISED
        assert points == wanted_points
        for life, point, hit in swept:
            count = hits[life, SEED][point]
            short = {count} if kind == "kill9" else {min(2, count)}
            expected = {1, min(2, count), count} if long else short
            assert {(life, point, other) for other in expected} <= swept, (point, hit)


def test_every_process_ended_where_it_should(verdicts: list[Verdict], wanted: list[Case]) -> None:
    assert len(verdicts) == len(wanted)
    assert [str(verdict.case) for verdict in verdicts if not verdict.happened] == []


def test_nothing_is_lost_doubled_hidden_or_left_waiting_wherever_a_process_ends(verdicts: list[Verdict]) -> None:
    assert {str(verdict.case): verdict.violations for verdict in verdicts if verdict.violations} == {}


def test_a_reader_polled_all_the_time(verdicts: list[Verdict]) -> None:
    assert min(verdict.looks for verdict in verdicts) >= 3
    assert sum(verdict.looks for verdict in verdicts) >= 10 * len(verdicts)
