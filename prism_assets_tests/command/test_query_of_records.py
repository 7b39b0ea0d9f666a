"""`prism query` on join tables: with all committed changes, or as in Glue."""

from __future__ import annotations

import pytest

from prism_assets_tests.builders import a_table
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.command.test_errors import fails, in_one_line
from prism_assets_tests.requests import Requests, a_join_table, back, front

NOON = "2026-03-01T12:00"
QUERY = ("query", "SELECT page, status FROM log.request")


@pytest.fixture
def shown(prism: Prism) -> Prism:
    """A record with one side visible in Glue, and a log table."""
    prism.world.apply(a_join_table() + "symlink: true\n", a_table())
    requests = Requests(prism.world)
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.show(NOON)
    requests.arrive([("back", back("a", NOON, 1, 200))], NOON)
    return prism


def test_changes_show_before_they_are_folded_and_with_published_behind_it(shown: Prism) -> None:
    assert shown.ok(*QUERY, "--json").json == [{"page": "home", "status": 200}]
    assert shown.ok(*QUERY, "--published", "--json").json == [{"page": "home", "status": None}]
    assert shown.ok("query", "SELECT count(*) AS rows FROM log.request_changes", "--json").json == [{"rows": 2}]
    by_symlinks = "SELECT page, status FROM log_symlink.request"
    assert shown.ok("query", by_symlinks, "--json").json == [{"page": "home", "status": None}]
    joined = (
        "SELECT r.status FROM log.request r JOIN log.request_changes c ON r.request_id = c.request_id "
        "WHERE c.version = 1"
    )
    assert shown.ok("query", joined, "--json").json == [{"status": 200}]


def test_without_postgresql_records_are_those_of_glue(shown: Prism) -> None:
    shown.set(database_url=None, bucket=None)
    assert shown.ok(*QUERY, "--json").json == [{"page": "home", "status": None}]


def test_a_postgresql_that_is_away_is_told_with_what_shows_records_meanwhile(shown: Prism) -> None:
    shown.set(database_url="postgresql://u:canary@127.0.0.1:1/none")
    done = shown(*QUERY)
    fails(done, 1, "does not answer", "`prism query --published` shows the records as of the last fold")
    in_one_line(done)
    shown.ok(*QUERY, "--published")
    shown.ok("query", "SELECT 1 FROM log.events")


def test_two_ways_at_once_are_refused(prism: Prism) -> None:
    fails(prism(*QUERY, "--published", "--iceberg"), 2, "choose one: --iceberg")
