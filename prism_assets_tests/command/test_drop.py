"""`prism table drop` for people: output, confirmation and exit status."""

from __future__ import annotations

import pytest

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.test_drop import lease_ends, retire

NOON = "2026-03-01T12:00"
NOW = ("--now", "2026-04-03T00:00")
DROP = ("table", "drop", "log.events", *NOW)


@pytest.fixture
def retired(prism: Prism) -> Prism:
    """A table with one open day, retired for a month."""
    prism.set(gc_max_fraction="1")
    prism.world.apply(a_table())
    prism.world.drop(some_rows(2, utc(NOON)))
    prism.world.stream(NOON)
    prism.world.catalog(NOON)
    retire(prism.world)
    return prism


def test_the_plan_is_shown_the_name_is_typed_and_each_garbage_collection_goes_on(retired: Prism) -> None:
    before = keys(retired.world)
    (folder,) = {key.split("/")[0] for key in before}
    assert retired.ok(*DROP, "--dry-run").out.splitlines() == [
        "log.events: taken out of the catalog, as log.events",
        "log.events: taken out of DuckLake",
        f"log.events: 1 object, 0.0 MB in s3://lake/{folder}/live/",
        "log.events: what is recorded of 1 day, 1 small and 0 merged objects; 1 staging object is forgotten, and "
        "stays where it is",
    ]
    refused = retired(*DROP)
    assert (refused.status, refused.out) == (2, "")
    assert "log.events goes for good, with 1 object, 0.0 MB: if that is meant, repeat with --confirm" in refused.err
    assert retired(*DROP, "--confirm", "log.event").status == 2
    assert retired.ok("files", "log.events").out
    begun = retired.ok(*DROP, "--confirm", "log.events").out
    assert begun.startswith("log.events is being dropped since ")
    assert "waits for `prism gc`, which deletes 1 object, 0.0 MB from " in begun
    assert retired("files", "log.events").status == 2
    assert retired.ok("status").out.startswith("log.events: is being dropped since ")
    assert retired.ok("gc").out.startswith("log.events is being dropped since ")
    assert keys(retired.world) == before
    lease_ends(retired.world)
    assert retired.ok("gc").out.startswith("log.events was dropped at ")
    assert retired.ok("gc").out == "0 objects, 0.0 MB deleted\n"
    assert retired.ok(*DROP).out.startswith("log.events was dropped at ")
    assert "log.events" not in retired.ok("table", "list").out
    assert keys(retired.world) == []


def test_plan_and_report_as_json(retired: Prism) -> None:
    (plan,) = retired.ok(*DROP, "--dry-run", "--json").json
    assert plan["objects"]["live/"]["objects"] == 1
    assert plan["obstacles"] == []
    report = retired.ok(*DROP, "--confirm", "log.events", "--json").json
    assert [(item["table"], item["state"]) for item in report["drops"]] == [("log.events", "deleting")]
    lease_ends(retired.world)
    report = retired.ok("gc", "--json").json["drops"]
    assert (report["deleted"]["objects"], report["drops"][0]["state"]) == (1, "dropped")


def test_what_cannot_be_dropped_is_told_with_the_plan(prism: Prism) -> None:
    prism.world.apply(a_table())
    prism.world.drop(some_rows(1, utc(NOON)))
    prism.world.stream(NOON)
    done = prism(*DROP, "--dry-run")
    assert (done.status, done.out.splitlines()[0]) == (2, "log.events: taken out of the catalog, as log.events")
    assert "log.events is not retired" in done.err
    done = prism(*DROP, "--confirm", "log.events")
    assert (done.status, "nothing was dropped" in done.err) == (2, True)
    assert prism("table", "drop", "log.none").status == 2


def test_a_catalog_that_does_not_answer_ends_with_1_and_the_next_call_goes_on(retired: Prism) -> None:
    endpoint = str(retired.world.settings.glue_endpoint)
    retired.set(glue_endpoint="http://127.0.0.1:9")
    failed = retired(*DROP, "--confirm", "log.events")
    assert (failed.status, "log.events: Glue at http" in failed.err) == (1, True)
    assert "waits for catalogs that still show it" in failed.out
    retired.set(glue_endpoint=endpoint)
    with retired.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_publication_intents SET expire_time = now()")
    assert "waits for `prism gc`" in retired.ok(*DROP).out
