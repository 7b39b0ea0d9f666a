"""Columns with two names: whoever uses the other one is told how the column is called, and offered no other column."""

from __future__ import annotations

import pytest

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism

NOON = "2026-03-01T12:00"
UID, ID_OF_USER = "{name: uid, type: bigint}", "{name: user_id, type: bigint, was: uid}"
LIKE_BOTH = "{name: user_idx, type: bigint}"
FORMER, NEW = "uid is called user_id since 2026-03-01 12:00Z", "user_id is the new name of uid"
IN_GLUE = "; readers of Glue, `prism query` among them, see uid: older objects are left: 1 object of open days"


@pytest.fixture
def renamed(prism: Prism) -> Prism:
    """A table with rows and a renamed column, whose new name resembles a third one."""
    world = prism.world
    world.apply(a_table(columns=[UID, LIKE_BOTH]))
    world.drop([row | {"uid": 7, "user_idx": 9} for row in some_rows(2, utc(NOON))])
    world.stream(NOON)
    world.catalog(NOON)
    world.apply(a_table(columns=[ID_OF_USER, LIKE_BOTH]), now=NOON)
    world.catalog(NOON)
    return prism


def test_an_erasure_by_the_former_name_is_told_the_new_one(renamed: Prism) -> None:
    done = renamed("erase", "log.events", "--where", "uid = 7", "--dry-run")
    assert (done.status, "did you mean" in done.err) == (2, False)
    assert f"there is no column uid above this one; {FORMER}{IN_GLUE}" in done.err
    assert renamed("erase", "log.events", "--where", "user_id = 7", "--dry-run").status == 0


def test_a_query_by_the_new_name_is_told_the_one_that_glue_shows_and_until_when(renamed: Prism) -> None:
    for query in (
        "SELECT user_id FROM log.events",
        "SELECT e.user_id FROM log.events e",
        "SELECT 1 FROM log.events WHERE user_id = 7",
        "SELECT * EXCLUDE (user_id) FROM log.events",
    ):
        done = renamed("query", query)
        assert (done.status, "Candidate" in done.err, "user_idx" in done.err) == (2, False, False), query
        assert f"the query is wrong: {NEW}{IN_GLUE}" in done.err
    assert renamed.ok("query", "SELECT uid FROM log.events").out


def test_a_query_by_a_name_that_no_column_ever_had_names_all_columns(renamed: Prism) -> None:
    done = renamed("query", "SELECT user_ids FROM log.events")
    assert (done.status, done.err) == (
        2,
        "prism: the query is wrong: there is no column user_ids; log.events has time, id, uid, user_idx, dt\n",
    )


def test_a_name_of_long_ago_is_known_when_the_rename_has_ended(prism: Prism) -> None:
    """No object has the name, and Glue has never shown it."""
    world = prism.world
    world.apply(a_table(columns=[UID]))
    world.apply(a_table(columns=[ID_OF_USER]), now=NOON)
    world.apply(a_table(columns=[ID_OF_USER.replace(", was: uid", ", source: uid"), "{name: uuid, type: string}"]))
    world.catalog(NOON)
    for words in (("erase", "log.events", "--where", "uid = 7", "--dry-run"), ("query", "SELECT uid FROM log.events")):
        done = prism(*words)
        assert (done.status, "uuid" in done.err) == (2, False)
        assert done.err.rstrip().removesuffix(" (at character 1)").endswith(FORMER)


def test_a_file_that_names_a_column_as_it_was_is_told_its_name(prism: Prism) -> None:
    world = prism.world
    world.apply(a_table(columns=[UID]))
    path = world.settings.tables_dir / "events.yaml"
    path.write_text(
        a_table(columns=[ID_OF_USER, "{name: ui, type: bigint}"], merge="{interval: 3600, sort_by: [uid]}")
        + 'keep: "uid > 0"\n'
    )
    done = prism("table", "apply", "--dry-run")
    assert (done.status, "did you mean" in done.err) == (2, False)
    assert "merge.sort_by: uid is not among the columns; uid is called user_id in this file" in done.err
    path.write_text(path.read_text().replace(", sort_by: [uid]", ""))
    done = prism("table", "apply", "--dry-run")
    assert (done.status, "did you mean" in done.err) == (2, False)
    assert "keep: there is no column uid above this one; uid is called user_id in this file" in done.err
