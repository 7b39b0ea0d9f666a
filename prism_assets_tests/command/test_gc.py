"""`prism gc` for people: output and exit status."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.stages.aging import keys

DAY = "2026-03-01"
AFTER = "2026-03-02T00:10"
DAYS_LATER = f"{datetime.now(timezone.utc) + timedelta(days=5):%Y-%m-%dT%H:%M}"


@pytest.fixture
def switched(prism: Prism) -> Prism:
    """A day with three merged small objects."""
    prism.set(gc_max_fraction="1")
    prism.world.apply(a_table(merge="{interval: 0}"))
    for _ in range(3):
        prism.world.drop(some_rows(2, utc(f"{DAY}T12:00")))
    prism.world.stream(f"{DAY}T12:00")
    for _ in range(2):
        prism.world.catalog(AFTER)
        prism.world.merge(AFTER)
    prism.world.catalog(AFTER)
    return prism


def test_a_dry_run_says_what_would_go_and_a_run_what_went(switched: Prism) -> None:
    before = keys(switched.world)
    planned = switched.ok("gc", "--dry-run", "--now", DAYS_LATER).out
    assert planned == (
        "log.events: 4 objects, 0.0 MB of 6 objects, 0.0 MB to delete: 3 merged, 1 replaced\n"
        "4 objects, 0.0 MB to delete\n"
    )
    assert keys(switched.world) == before
    assert switched.ok("gc", "--now", DAYS_LATER).out == planned.replace("to delete", "deleted")
    assert switched.ok("gc", "--now", DAYS_LATER).out == "0 objects, 0.0 MB deleted\n"
    assert len(keys(switched.world)) == 2


def test_what_is_young_stays(switched: Prism) -> None:
    assert switched.ok("gc").out == "0 objects, 0.0 MB deleted\n"


def test_the_json_names_each_object_of_a_dry_run(switched: Prism) -> None:
    before = set(keys(switched.world))
    (table,) = switched.ok("gc", "--dry-run", "--json", "--now", DAYS_LATER).json["tables"]
    assert {item["reason"] for item in table["planned"]} == {"merged", "replaced"}
    report = switched.ok("gc", "--json", "--now", DAYS_LATER).json
    assert report["tables"][0]["deleted"]["merged"]["objects"] == 3
    assert {item["key"] for item in table["planned"]} == before - set(keys(switched.world))


def test_what_is_held_back_is_said_and_is_no_error(switched: Prism) -> None:
    switched.set(gc_max_fraction="0.5")
    assert "more are held back for the next runs" in switched.ok("gc", "--now", DAYS_LATER).out


def test_an_error_ends_with_1_and_wrong_use_with_2(switched: Prism) -> None:
    switched.set(glue_endpoint="http://127.0.0.1:9")
    failed = switched("gc", "--now", DAYS_LATER)
    assert (failed.status, "log.events: " in failed.err) == (1, True)
    assert switched("gc", "--table", "log.none").status == 2
    assert switched("gc", "--now", "2100-01-01", force=False).status == 2
