"""Changed routes hold for objects claimed later, and move old lines by a rebuild of all tables of the prefix."""

from __future__ import annotations

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.metadata.intake.backlog import count_stopped
from prism_assets.metadata.tables.column_transitions import load_left_to_rewrite
from prism_assets.metadata.tables.tables import load_definitions
from prism_assets.stages.rebuild.routes import OBSTACLE
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.stream.commit import release_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets.stages.stream.unread import retry_object
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.shared_prefix import (
    ACCOUNTS,
    EVENTS,
    LATER,
    NOON,
    OTHERWISE,
    WHEN,
    WIDER,
    a_share,
    finish,
    ledgers,
    pairs,
    put,
    rebuild,
    stopped,
    taking,
    undivided,
)
from prism_assets_tests.world import World


def test_a_changed_route_holds_for_objects_claimed_later(app: World) -> None:
    before = put(app, "view", "signup")
    finish(app, NOON)
    plan = app.apply(WIDER)
    assert [table.name.table for table in plan.tables if table.changes] == ["accounts", "events"]
    assert any("rebuild together: log.accounts, log.events" in notice for notice in plan.notices)
    after = put(app, "view", "click")
    finish(app)
    assert app.ids("log.accounts") == sorted(before["signup"] + after["view"])
    assert app.ids("log.events") == sorted(before["view"] + after["click"])
    assert undivided(app) == []


def test_an_object_that_one_table_has_claimed_keeps_its_routes_for_the_other(app: World) -> None:
    """Otherwise the line of a view would be in neither table: one reads by the former route, the other by the new."""
    found = put(app, "view", "signup")
    app.discover(NOON)
    run_stream(app.context, now=utc(NOON), names=["log.accounts"])
    app.apply(WIDER)
    finish(app)
    assert app.ids("log.events") == found["view"]
    assert app.ids("log.accounts") == found["signup"]
    assert undivided(app) == []


def discarded(file: str) -> str:
    return file.replace(", route:", ", discard: true, route:")


def test_a_stopped_stream_stays_stopped_when_its_route_changes(app: World) -> None:
    """Objects of a time before the change are divided by the former routes, and later ones by the new ones."""
    app.apply(ACCOUNTS, stopped(EVENTS))
    before = put(app, "view", "signup")
    finish(app)
    assert ledgers(app) == {"accounts": (2, 1, 0, 1)}
    app.apply(WIDER, stopped(EVENTS))
    after = put(app, "view", "click")
    finish(app)
    assert app.ids("log.events") == []
    with app.context.database.begin() as connection:
        ids = [table.table_id for table in load_definitions(connection)]
        assert [item.objects for item in count_stopped(connection, ids)] == [2]
    app.apply(WIDER, EVENTS)
    finish(app)
    assert app.ids("log.accounts") == sorted(before["signup"] + after["view"])
    assert app.ids("log.events") == sorted(before["view"] + after["click"])
    assert undivided(app) == []


def test_a_stream_that_is_discarded_after_its_route_changed_reads_no_object(app: World) -> None:
    app.apply(ACCOUNTS, stopped(EVENTS))
    put(app, "view", "signup")
    finish(app)
    app.apply(WIDER, stopped(EVENTS))
    app.apply(WIDER, discarded(EVENTS))
    finish(app)
    assert ledgers(app) == {"accounts": (2, 1, 0, 1), "events": (0, 0, 0, 0)}
    assert undivided(app) == []


def failed_in_all_attempts(world: World, table: str) -> None:
    statement = f"""
        UPDATE prism_staging_objects o SET state = 'failed' FROM prism_tables t
        WHERE t.prism_table_id = o.prism_table_id AND table_name = '{table}'
    """
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize("given_up", ["accounts", "events"])
def test_an_object_that_was_given_up_keeps_its_routes(app: World, given_up: str) -> None:
    """One table has read it by the former routes: by the new ones, a view would be in both tables, or in none."""
    found = put(app, "view", "signup")
    app.discover(NOON)
    (key,) = pairs(app)
    failed_in_all_attempts(app, given_up)
    finish(app)
    app.apply(WIDER)
    retry_object(app.context, f"s3://staging/{key}")
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])
    assert undivided(app) == []


def test_an_object_in_a_batch_keeps_its_routes_also_when_it_is_given_up(app: World) -> None:
    found = put(app, "view", "signup")
    app.discover(NOON)
    plan = start_batch(app.context, None)
    assert plan is not None
    app.apply(WIDER)
    release_batch(app.context, plan)
    (key,) = pairs(app)
    failed_in_all_attempts(app, "accounts")
    finish(app)
    retry_object(app.context, f"s3://staging/{key}")
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])
    assert undivided(app) == []


def test_an_object_to_be_read_by_former_routes_delays_a_change_of_stored_types(app: World) -> None:
    """It would write the former type after all other objects have the wider one."""
    events, wider = (
        a_share("log.events", OTHERWISE, columns=[f"{{name: size, type: {item}}}"]) for item in ("integer", "bigint")
    )
    app.apply(stopped(events))
    put(app, "view", "signup")
    finish(app)
    app.apply(WIDER, stopped(events))
    app.apply(stopped(wider))
    with app.context.database.begin() as connection:
        (table,) = (item for item in load_definitions(connection) if str(item.name) == "log.events")
        assert load_left_to_rewrite(connection, table.table_id, table.version).staging == 1


def test_waiting_objects_are_dealt_to_the_tables_now_in_the_files(app: World) -> None:
    found = put(app, "view", "signup", "click")
    app.discover(NOON)
    app.apply(
        a_share("log.views", taking("view")),
        ACCOUNTS.replace('"s3://staging/app/", route: ' + taking("signup", "login"), '"s3://staging/other/"'),
    )
    finish(app)
    assert app.ids("log.views") == found["view"]
    assert app.ids("log.events") == sorted(found["signup"] + found["click"])
    assert ledgers(app) == {"views": (3, 1, 0, 2), "events": (3, 2, 0, 1)}
    assert undivided(app) == []


def test_rebuilding_both_tables_divides_old_lines_by_the_new_routes(app: World) -> None:
    found = put(app, "view", "signup", "click")
    finish(app)
    app.apply(WIDER)
    assert undivided(app) == []
    rebuild(app, "log.accounts", "log.events")
    assert app.ids("log.accounts") == sorted(found["view"] + found["signup"])
    assert app.ids("log.events") == found["click"]
    assert ledgers(app) == {"accounts": (3, 2, 0, 1), "events": (3, 1, 0, 2)}
    assert undivided(app) == []


def test_one_table_rebuilt_alone_is_told_as_routes_of_different_times(app: World) -> None:
    put(app, "view", "signup", "click")
    finish(app)
    app.apply(WIDER)
    assert run_rebuild(app.context, "log.accounts", day=utc(NOON).date(), now=utc(LATER)).errors == ()
    assert {item.kind for item in undivided(app)} == {"mixed_routes"}


def test_a_rebuild_makes_the_day_for_the_table_that_gains_its_first_lines(app: World) -> None:
    found = put(app, "view", "click")
    finish(app)
    assert app.ids("log.accounts") == []
    app.apply(WIDER)
    rebuild(app, "log.accounts", "log.events")
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["view"], found["click"])
    assert undivided(app) == []


def test_a_rebuild_takes_lines_of_objects_that_came_long_after_their_day(app: World) -> None:
    early = put(app, "signup", "click")
    finish(app)
    late = put(app, "view", "click")
    finish(app, "2026-03-09T03:00")
    with app.context.database.begin() as connection:  # objects of the local store come when the test runs
        connection.exec_driver_sql("UPDATE prism_staging_objects SET send_time = first_receive_time")
    app.apply(WIDER)
    rebuild(app, "log.accounts", "log.events")
    assert app.ids("log.accounts") == sorted(early["signup"] + late["view"])
    assert app.ids("log.events") == sorted(early["click"] + late["click"])
    assert undivided(app) == []


def test_no_day_is_made_for_a_table_whose_routes_stay(app: World) -> None:
    put(app, "view", "click")
    finish(app)
    app.apply(ACCOUNTS.replace("{name: time,", WHEN))
    with pytest.raises(WrongUse, match="nothing to rebuild"):
        run_rebuild(app.context, "log.accounts", day=utc(NOON).date(), now=utc(LATER))


LATE_NAMED = b'{"kind": "signup", "id": 1, "when": "2026-03-01T12:00:00Z"}'


@pytest.mark.parametrize("kinds", [("view",), ("view", "signup")])
def test_a_replay_leaves_objects_that_the_tables_divided_by_earlier_routes(app: World, kinds: tuple[str, ...]) -> None:
    """By the current ones a view would be in both tables, and the line in quarantine in none. Also beside rows."""
    found = put(app, *kinds, extra=[LATE_NAMED])
    finish(app)
    before = ledgers(app)
    app.apply(a_share("log.accounts", taking("login", "view")).replace("{name: time,", WHEN), EVENTS)
    report = run_replay(app.context, "log.accounts", dry_run=True, now=utc(LATER))
    assert (report.objects, report.with_rows) == (0, 0)
    assert (report.earlier_division, report.lines_of_earlier_division) == (1, 1)
    report = run_replay(app.context, "log.accounts", now=utc(LATER))
    assert any("divided by earlier routes" in sentence for sentence in report.sentences)
    finish(app)
    assert app.ids("log.accounts") == found.get("signup", [])
    assert ledgers(app) == before
    assert undivided(app) == []


def test_a_replay_rebuilds_no_day_with_such_an_object(app: World) -> None:
    old = put(app, "view", "signup")
    finish(app)
    app.apply(WIDER)
    new = put(app, "view", extra=[LATE_NAMED])
    finish(app)
    app.apply(WIDER.replace("{name: time,", WHEN), EVENTS)
    report = run_replay(app.context, "log.accounts", now=utc(LATER))
    assert [plan.obstacle for plan in report.days] == [OBSTACLE]
    finish(app)
    assert app.ids("log.accounts") == sorted(old["signup"] + new["view"])
    assert undivided(app) == []


def test_a_replay_reads_objects_again_whose_routes_came_back(app: World) -> None:
    put(app, "view", extra=[LATE_NAMED])
    finish(app)
    app.apply(WIDER)
    app.apply(ACCOUNTS.replace("{name: time,", WHEN), EVENTS)
    run_replay(app.context, "log.accounts", now=utc(LATER))
    finish(app)
    assert app.ids("log.accounts") == [1]
    assert undivided(app) == []
