"""Races in a forced order, each decided by a lock or a fence. Without the lock or fence the suites turn red."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from prism_assets_tests.crash import races, sweep
from prism_assets_tests.crash.fleet import Fleet, Work
from prism_assets_tests.crash.patched import REMOVALS, Removal, copy_without, edited
from prism_assets_tests.crash.sweep import Case
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.reliability import Figures


@pytest.fixture(scope="module")
def outcomes(fleet: Fleet, figures: Figures) -> dict[str, list[str]]:
    works = [Work(function=f"{races.__name__}:run", arguments={"name": name}) for name in races.RACES]
    found = {}
    for done in fleet.map(works):
        found[done.work.arguments["name"]] = said = [*(done.result or []), *filter(None, [done.error])]
        figures.note("Races in a forced order", said, races=1)
    return found


@pytest.mark.parametrize("race", races.RACES)
def test_a_race_ends_well(outcomes: dict[str, list[str]], race: str) -> None:
    assert outcomes[race] == []


def removals(*, long: bool) -> Sequence[Removal]:
    """Each takes seconds: the short form plays every eighth."""
    return REMOVALS if long else REMOVALS[::8]


@pytest.mark.parametrize("removed", REMOVALS, ids=str)
def test_what_is_to_be_taken_out_is_there(removed: Removal) -> None:
    for edit in removed.edits:
        assert edited(edit)


def test_a_suite_turns_red_without(
    removal: Removal, services: Mapping[str, str], postgres: PostgresServer, tmp_path: Path, figures: Figures
) -> None:
    found = violations_without(removal, services, postgres, tmp_path)
    figures.note("Null controls", found, control=f"{removal.name} (race `{removal.race or 'sweep'}`)")
    assert [said for said in found if removal.says in said], f"nothing tells that {removal.name} is missing: {found}"


def violations_without(
    removal: Removal, services: Mapping[str, str], postgres: PostgresServer, folder: Path
) -> list[str]:
    """Returns the suite's violations for the package without a mechanism."""
    fleet = Fleet(services, postgres.template(), workers=1, package=copy_without(removal, folder / "copy"))
    try:
        if removal.race:
            (done,) = fleet.map([Work(function=f"{races.__name__}:run", arguments={"name": removal.race})])
            assert not done.error, done.error
            return list(done.result)
        (verdict,) = sweep.sweep(fleet, [Case("days", 1, "stream.in_commit", 1, "kill9")])
        assert not verdict.happened
        return verdict.violations
    finally:
        fleet.close()
