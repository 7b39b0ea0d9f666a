"""Tables join and leave a prefix, and keys change, only before one of its objects is begun."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.stages.apply.run import apply_sound, run_apply
from prism_assets.stages.drop.run import run_drop
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.stages.shared_prefix import (
    ACCOUNTS,
    EVENTS,
    LATER,
    NOON,
    WIDER,
    a_share,
    finish,
    put,
    taking,
    undivided,
)
from prism_assets_tests.world import World

ELSEWHERE = a_table("log.accounts")
"""The table without the shared prefix."""


def versions(world: World) -> list[tuple[Any, ...]]:
    """The definitions in force and the streams, for comparisons."""
    statement = """
        SELECT table_name, definition_version, prism_stream_id, removed, route_key, taken_keys
        FROM prism_tables JOIN prism_streams USING (prism_table_id) ORDER BY prism_stream_id
    """
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def assert_refused(world: World, complaint: str, *files: str) -> None:
    """Also for Dagster, which applies the sound files, and in a dry run."""
    before = versions(world)
    with pytest.raises(DefinitionError, match=rf"\.yaml:\d+: .*{complaint}"):
        world.apply(*files)
    folder = world.settings.tables_dir
    with pytest.raises(DefinitionError, match=complaint):
        run_apply(world.context, folder, utc(LATER), dry_run=True)
    assert any(complaint in problem for problem in apply_sound(world.context, folder, utc(LATER)).problems)
    assert versions(world) == before


JOINS, LEAVES = "of log.{} would join a prefix whose objects", "of log.accounts would leave log.events alone"


def test_no_table_joins_a_prefix_with_begun_objects(world: World) -> None:
    world.apply(a_share("log.events", ""))
    found = put(world, "view", "signup")
    finish(world)
    assert_refused(world, JOINS.format("accounts"), ACCOUNTS, EVENTS)
    finish(world)
    assert world.ids("log.events") == sorted(found["view"] + found["signup"])


def test_a_table_joins_a_prefix_whose_objects_wait(world: World) -> None:
    world.apply(a_share("log.events", ""))
    found = put(world, "view", "signup")
    world.discover(NOON)
    world.apply(ACCOUNTS, EVENTS)
    finish(world)
    assert (world.ids("log.accounts"), world.ids("log.events")) == (found["signup"], found["view"])
    assert undivided(world) == []


def test_no_table_leaves_or_retires_from_a_prefix_with_begun_objects(app: World) -> None:
    put(app, "view", "signup")
    app.discover(NOON)
    run_stream(app.context, now=utc(NOON), names=["log.events"])
    assert_refused(app, LEAVES, ELSEWHERE)
    lines = ELSEWHERE.splitlines(keepends=True)
    retired = "".join(line for line in lines if "streams:" not in line and "url:" not in line) + "retired: true\n"
    assert_refused(app, LEAVES, retired)


def test_no_other_table_takes_the_place_of_one_at_a_prefix_with_begun_objects(app: World) -> None:
    put(app, "view", "signup")
    finish(app)
    people = a_share("log.people", taking("signup", "login"))
    assert_refused(app, JOINS.format("people"), people, ELSEWHERE)


def test_all_tables_leave_a_prefix_together_and_none_comes_back_to_objects_of_the_others(app: World) -> None:
    found = put(app, "view", "signup")
    app.discover(NOON)
    run_stream(app.context, now=utc(NOON), names=["log.events"])
    app.apply(ELSEWHERE, a_table("log.events"))
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])
    assert_refused(app, JOINS.format("accounts"), a_share("log.accounts", ""))


def test_a_table_that_left_takes_no_prefix_over_from_the_one_that_read_on(app: World) -> None:
    app.apply(ELSEWHERE, a_share("log.events", ""))
    put(app, "view", "signup")
    finish(app)
    assert_refused(app, JOINS.format("accounts"), a_share("log.accounts", ""), a_table("log.events"))


def test_a_table_that_joins_after_another_left_continues_no_stream_of_it(app: World) -> None:
    app.apply(ELSEWHERE)
    found = put(app, "view", "signup")
    app.discover(NOON)
    app.apply(a_share("log.audit", taking("view")))
    finish(app)
    assert (app.ids("log.audit"), app.ids("log.events")) == (found["view"], found["signup"])
    assert undivided(app) == []


def test_no_key_of_a_prefix_with_begun_objects_changes(world: World) -> None:
    world.apply(a_share("log.alb", "{key: '*ALB*'}"), a_share("log.events", "{otherwise: true}"))
    put(world, "view")
    finish(world)
    assert_refused(world, "would read other keys of a prefix", a_share("log.alb", "{key: '*NLB*'}"))


def test_a_child_table_joins_and_leaves_a_prefix_with_begun_objects(app: World) -> None:
    put(app, "view", "signup")
    finish(app)
    lines = a_table("log.items")
    app.apply(lines.replace('"s3://staging/items/"}', '"s3://staging/app/", format: {json: {records: "$.items[*]"}}}'))
    app.apply(lines)
    assert undivided(app) == []


def test_a_table_never_read_is_not_dropped_while_others_leave_it_its_lines(app: World) -> None:
    put(app, "view", "signup")
    app.discover(NOON)
    run_stream(app.context, now=utc(NOON), names=["log.events"])
    (app.settings.tables_dir / "accounts.yaml").unlink()
    before = versions(app)
    with pytest.raises(WrongUse, match="divides s3://staging/app/ with"):
        run_drop(app.context, "log.accounts", confirm="log.accounts", now=utc(LATER))
    assert versions(app) == before


def test_a_wrong_file_of_a_prefix_keeps_the_routes_of_all_its_tables(app: World) -> None:
    folder = app.settings.tables_dir
    (folder / "accounts.yaml").write_text(WIDER)
    (folder / "events.yaml").write_text("schema: log\n")
    plan = apply_sound(app.context, folder, utc(NOON))
    assert not any(table.changes for table in plan.tables)
    assert any("whose file is missing or wrong" in problem for problem in plan.problems)
    found = put(app, "view")
    (folder / "events.yaml").write_text(EVENTS)
    assert apply_sound(app.context, folder, utc(NOON)).problems == ()
    finish(app)
    assert app.ids("log.accounts") == found["view"]
