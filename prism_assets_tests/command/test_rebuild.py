"""`prism rebuild` for people: output and exit status."""

from __future__ import annotations

import pytest

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism

DAY = "2026-03-01"
AFTER = "2026-03-02T00:10"
REBUILD = ("rebuild", "log.events", "--date", DAY)
MARK = ["{name: mark, type: integer, value: '2'}"]


@pytest.fixture
def closed(prism: Prism) -> Prism:
    """A closed day of two small objects, and another definition since."""
    prism.world.apply(a_table(merge="{interval: 0}"))
    for _ in range(2):
        prism.world.drop(some_rows(2, utc(f"{DAY}T12:00")))
    prism.world.stream(f"{DAY}T12:00")
    prism.world.catalog(AFTER)
    prism.world.apply(a_table(merge="{interval: 0}", columns=MARK))
    return prism


def test_a_dry_run_says_what_a_rebuild_does_and_a_rebuild_what_it_did(closed: Prism) -> None:
    planned = "convert 2 staging objects of 0.0 MB under version 2 of the definition, merge 0 objects anew"
    assert closed.ok(*REBUILD, "--dry-run").out == f"log.events {DAY}: {planned}\n"
    (plan,) = closed.ok(*REBUILD, "--dry-run", "--json").json
    assert (plan["candidates"]["objects"], plan["obstacle"]) == (2, None)
    done = closed.ok(*REBUILD).out
    assert done.startswith(f"log.events {DAY}: 2 staging objects converted under version 2 of the definition, 4 rows")
    nothing = f"log.events {DAY}: nothing to rebuild, its rows are of version 2 of the definition\n"
    assert closed.ok(*REBUILD).out == nothing
    assert closed.ok(*REBUILD, "--json").json["days"][0]["totals"] is None
    closed.world.catalog(AFTER)
    assert closed.world.query("SELECT mark, count(*) FROM log.events GROUP BY 1") == [(2, 4)]


def test_what_is_gone_is_named(closed: Prism) -> None:
    (closed.world.root / "buckets" / "staging" / "events" / "2026" / "000001.gz").unlink()
    failed = closed(*REBUILD)
    assert (failed.status, "--without-missing" in failed.err) == (1, True)
    done = closed.ok(*REBUILD, "--without-missing").out
    assert "1 staging object is gone, whose rows stay as they were" in done
    assert f"{DAY}: s3://staging/events/2026/000001.gz is gone" in done


def test_wrong_use_is_told(closed: Prism) -> None:
    for words, said in (
        (("rebuild", "log.events"), "--date"),
        (("rebuild", "log.other", "--date", DAY), "there is no table log.other"),
        (("rebuild", "log.events", "--date", "yesterday"), "yesterday is not a date"),
        (("rebuild", "log.events", "--date", "2026-02-01"), "there is nothing to rebuild"),
    ):
        failed = closed(*words)
        assert (failed.status, said in failed.err) == (2, True), failed.err
