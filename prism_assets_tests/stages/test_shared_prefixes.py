"""One prefix feeds several tables: each line is in one of them, and the ledgers prove it together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import DefinitionError, InvariantBroken, WrongUse
from prism_assets.domain.findings import Finding
from prism_assets.metadata.intake.backlog import count_stopped
from prism_assets.metadata.tables.column_transitions import load_left_to_rewrite
from prism_assets.metadata.tables.tables import load_definitions
from prism_assets.stages.apply.run import apply_sound, run_apply
from prism_assets.stages.checks.intake import QUARANTINE_RATE
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.drop.run import run_drop
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.findings.groups import DIVIDED_LINES, GROUPS
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.findings.set_aside import SET_ASIDE, set_aside_by
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.rebuild.routes import OBSTACLE
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.run import run_until_idle
from prism_assets.stages.stream.commit import release_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets.stages.stream.unread import give_up_object, retry_object
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World

NOON, MORNING, LATER = "2026-03-01T12:00", "2026-03-02T00:30", "2026-03-02T03:00"
OTHERWISE = "{by: $.kind, otherwise: true}"


def a_share(name: str, route: str, url: str = "s3://staging/app/", **more: Any) -> str:
    """A table file with a stream at a shared prefix."""
    table = name.split(".")[1]
    text = a_table(name, **more)
    own = f'"s3://staging/{table}/"}}'
    assert own in text
    return text.replace(own, f'"{url}", route: {route}}}' if route else f'"{url}"}}')


def taking(*kinds: str) -> str:
    return f"{{by: $.kind, in: [{', '.join(kinds)}]}}"


ACCOUNTS = a_share("log.accounts", taking("signup", "login"))
EVENTS = a_share("log.events", OTHERWISE)


@pytest.fixture
def app(world: World) -> World:
    """Two tables that share a prefix."""
    world.apply(ACCOUNTS, EVENTS)
    return world


def put(world: World, *kinds: Any, extra: Sequence[bytes] = ()) -> dict[str, list[int]]:
    """Puts one object with a line for each kind. Returns the ids of the lines by kind."""
    rows = [{**row, "kind": kind} for row, kind in zip(some_rows(len(kinds), utc(NOON)), kinds, strict=True)]
    body = as_lines(rows) + b"".join(line + b"\n" for line in extra)
    world.drop([], stream="app", body=zipped(body))
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(str(row["kind"]), []).append(row["id"])
    return found


def ledgers(world: World) -> dict[str, tuple[int, ...]]:
    """Lines, rows, quarantined lines and lines elsewhere of all objects, by table."""
    statement = """
        SELECT table_name, sum(lines_in), sum(rows_out), sum(rows_quarantined), sum(rows_elsewhere)
        FROM prism_staging_objects JOIN prism_tables USING (prism_table_id) WHERE state = 'done' GROUP BY 1
    """
    with world.context.database.begin() as connection:
        return {row[0]: tuple(map(int, row[1:])) for row in connection.exec_driver_sql(statement)}


def undivided(world: World) -> list[Finding]:
    return list(read_findings(world.context, None, [GROUPS], now=utc(LATER)))


def finish(world: World, now: str = LATER) -> None:
    run_until_idle(world.context, clock=lambda: utc(now), patience=0)


def test_each_line_is_in_one_table_and_the_ledgers_divide_the_object(app: World) -> None:
    found = put(app, "signup", "view", "login", None, "view", extra=[b"{broken", b"[1]", b'{"kind": {"a": 1}}'])
    finish(app)
    assert app.ids("log.accounts") == sorted(found["signup"] + found["login"])
    assert app.ids("log.events") == sorted(found["view"] + found["None"])
    assert ledgers(app) == {"accounts": (8, 2, 0, 6), "events": (8, 3, 3, 2)}
    assert undivided(app) == []


def test_a_value_matches_as_text_and_only_a_readable_one(world: World) -> None:
    world.apply(a_share("log.accounts", "{by: $.kind, in: ['1', 'true', 'null']}"), EVENTS)
    found = put(world, 1, "1", True, None, "null", 1.0, ["1"])
    finish(world)
    assert len(world.ids("log.accounts")) == 4
    assert found["None"][0] in world.ids("log.events")
    assert ledgers(world) == {"accounts": (7, 4, 0, 3), "events": (7, 3, 0, 4)}


def test_a_line_that_names_the_field_twice_belongs_to_otherwise(app: World) -> None:
    put(app, "signup", extra=[b'{"time": "2026-03-01T12:00:00Z", "id": 1, "kind": "login", "kind": "login"}'])
    finish(app)
    assert ledgers(app) == {"accounts": (2, 1, 0, 1), "events": (2, 1, 0, 1)}


def test_a_damaged_object_is_in_the_quarantine_of_otherwise_alone(app: World) -> None:
    whole = zipped(as_lines([{**row, "kind": "signup"} for row in some_rows(50, utc(NOON))]))
    app.drop([], stream="app", body=whole[:-4] + b"\0\0\0\0")
    app.stream(NOON)
    assert ledgers(app) == {"accounts": (50, 0, 0, 50), "events": (50, 0, 50, 0)}
    assert undivided(app) == []


def test_an_object_is_registered_for_all_tables_of_its_prefix_at_once(app: World) -> None:
    put(app, "view")
    assert app.discover(NOON).new == 2
    assert app.discover(NOON).new == 0
    put(app, "view")
    assert app.discover(NOON).new == 2


def test_a_line_lost_between_two_tables_passes_each_ledger_and_fails_the_balance(app: World) -> None:
    """The null control: each row of the ledger adds up, and the object does not."""
    put(app, "signup", "view", "login")
    app.stream(NOON)
    assert check(app, DIVIDED_LINES, LATER).passed
    statement = """
        UPDATE prism_staging_objects SET rows_elsewhere = rows_elsewhere + 1, rows_out = rows_out - 1
        WHERE rows_out = 2
    """
    with app.context.database.begin() as connection:
        connection.exec_driver_sql(statement)
    assert [item.kind for item in undivided(app)] == ["lost_between_tables"] * 2
    found = check(app, DIVIDED_LINES, LATER)
    assert not found.passed
    assert "3 lines, of which the tables take 2" in found.sentence
    doctor = run_doctor(app.context, now=utc(LATER))
    assert "lost_between_tables" in [item.kind for item in doctor.findings]


def test_an_object_that_one_table_has_still_to_read_is_not_judged(app: World) -> None:
    put(app, "signup", "view")
    app.discover(NOON)
    run_stream(app.context, now=utc(NOON), names=["log.accounts"])
    assert ledgers(app) == {"accounts": (2, 1, 0, 1)}
    assert undivided(app) == []
    run_stream(app.context, now=utc(NOON))
    assert undivided(app) == []


def test_a_ledger_that_does_not_add_up_cannot_be_stored(app: World) -> None:
    put(app, "signup", "view")
    app.stream(NOON)
    with (
        pytest.raises(InvariantBroken, match="prism_staging_objects_balance"),
        app.context.database.begin() as connection,
    ):
        connection.exec_driver_sql("UPDATE prism_staging_objects SET rows_elsewhere = rows_elsewhere + 1")


def test_a_table_that_takes_one_of_many_lines_is_judged_by_its_own(world: World) -> None:
    """Lines of the other table would hide that each line of this one is quarantined."""
    world.apply(a_share("log.events", taking("signup")), a_share("log.views", OTHERWISE))
    put(world, *["view"] * 99, extra=[b'{"kind": "signup", "id": 1}'])
    report = world.stream(NOON)
    assert [item.table for item in set_aside_by(world.context, report)] == ["log.events"]
    found = check(world, QUARANTINE_RATE, NOON)
    assert not found.passed
    assert "1 of 1 line of the last day are quarantined (100.00%)" in found.sentence
    status = read_findings(world.context, None, [SET_ASIDE], now=utc(NOON))
    assert [(item.kind, item.table) for item in status] == [("lines_set_aside", "log.events")]


# keys


def test_objects_go_to_the_table_whose_key_they_match_and_the_others_to_otherwise(world: World) -> None:
    world.apply(a_share("log.alb", "{key: '*/ALB/*'}"), a_share("log.events", "{otherwise: true}"))
    for name, place in ((1, "ALB"), (2, "web")):
        world.drop(some_rows(name, utc(NOON)), stream=f"app/eu/{place}")
    keys = [path.relative_to(world.root / "buckets" / "staging") for path in (world.root / "buckets").rglob("*.gz")]
    assert len(keys) == 2
    for path in keys:  # the folder of the year would not match
        target = world.root / "buckets" / "staging" / path.parent.parent / path.name
        (world.root / "buckets" / "staging" / path).rename(target)
    assert world.discover(NOON).new == 2
    finish(world)
    assert (len(world.ids("log.alb")), len(world.ids("log.events"))) == (1, 2)
    assert ledgers(world) == {"alb": (1, 1, 0, 0), "events": (2, 2, 0, 0)}


# records of documents


def test_a_child_table_reads_the_records_inside_of_lines_that_others_divide(world: World) -> None:
    items = a_table("log.items").replace(
        '"s3://staging/items/"}', '"s3://staging/app/", format: {json: {records: "$.items[*]"}}}'
    )
    world.apply(ACCOUNTS, EVENTS, items)
    parts = some_rows(3, utc(NOON))
    rows = [
        {**row, "kind": kind, "items": inner}
        for row, kind, inner in zip(some_rows(2, utc(NOON)), ("signup", "view"), (parts[:2], parts[2:]), strict=True)
    ]
    world.drop(rows, stream="app")
    finish(world)
    assert (world.ids("log.accounts"), world.ids("log.events")) == ([rows[0]["id"]], [rows[1]["id"]])
    assert world.ids("log.items") == [row["id"] for row in parts]
    assert ledgers(world) == {"accounts": (2, 1, 0, 1), "events": (2, 1, 0, 1), "items": (3, 3, 0, 0)}
    assert undivided(world) == []


def test_a_record_with_a_bad_value_around_it_belongs_to_the_table_of_its_own_value(world: World) -> None:
    """The others do not read the value around it, and see a sound record of this table."""
    records = 'format: {json: {records: "$.r[*]"}}, route:'
    outer = "{name: region, type: string, source: $outer.region}"
    accounts = a_share("log.accounts", taking("signup"), columns=[outer]).replace("route:", records)
    world.apply(accounts, EVENTS.replace("route:", records))
    rows = [{**row, "kind": kind} for row, kind in zip(some_rows(2, utc(NOON)), ("signup", "view"), strict=True)]
    body = as_lines([{"r": rows}]).replace(b'{"r"', b'{"region": "\\ud800", "r"')
    world.drop([], stream="app", body=zipped(body))
    finish(world)
    assert ledgers(world) == {"accounts": (2, 0, 1, 1), "events": (2, 1, 0, 1)}
    assert undivided(world) == []


# apply


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ([ACCOUNTS], "no table takes the other lines"),
        ([ACCOUNTS, a_share("log.events", "")], "is read by log.accounts, too"),
        ([ACCOUNTS, a_share("log.events", taking("view"))], "has no table for the other lines"),
        ([ACCOUNTS, EVENTS, a_share("log.views", taking("view", "login"))], "takes 'login', and so does"),
        ([ACCOUNTS, EVENTS, a_share("log.views", OTHERWISE)], "only one table takes the rest"),
        ([ACCOUNTS, a_share("log.events", "{by: $.type, otherwise: true}")], "divide lines by one field"),
        (
            [ACCOUNTS, EVENTS.replace("route:", "include: ['*.gz'], route:")],
            "has other `include` and `exclude` than that of log.accounts",
        ),
        ([a_share("log.alb", "{key: '*/ALB/*'}"), a_share("log.events", "")], "say `route: {otherwise: true}`"),
        ([a_share("log.alb", "{key: '*/ALB/*'}")], "no table reads the other objects"),
        (
            [
                a_share("log.alb", "{key: '*/ALB/*'}"),
                a_share("log.x", "{key: '*/A*/*'}"),
                a_share("log.y", "{otherwise: true}"),
            ],
            "some key matches both",
        ),
        ([ACCOUNTS, a_share("log.events", OTHERWISE, url="s3://staging/app/sub/")], "overlaps s3://staging/app/"),
        ([a_share("log.events", "{}")], "must say key, by or otherwise"),
        ([a_share("log.events", "{by: $.kind}")], "needs one of `in` and `otherwise: true`"),
        ([a_share("log.events", "{in: [a]}")], "needs `by`"),
        ([a_share("log.events", "{by: '@line', in: [a]}")], "must be a key or a path"),
        ([a_share("log.events", "{by: $.kind, in: [1]}")], "1 must be text: write it in quotes"),
    ],
)
def test_apply_refuses_routes_that_leave_a_line_without_a_table_or_give_it_two(
    world: World, files: list[str], complaint: str
) -> None:
    with pytest.raises(DefinitionError, match=complaint.replace("{", r"\{").replace("*", r"\*")):
        world.apply(*files)


def test_a_table_alone_at_a_prefix_needs_no_route(world: World) -> None:
    world.apply(a_share("log.events", ""))
    found = put(world, "view")
    finish(world)
    assert world.ids("log.events") == found["view"]


def test_apply_shows_the_parts_of_the_other_tables(world: World) -> None:
    lines = world.apply(ACCOUNTS, EVENTS).lines
    assert (
        "create stream accounts of log.accounts at s3://staging/app/, route: {by: $.kind, in: [signup, login]}" in lines
    )
    told = next(line for line in lines if "stream events" in line)
    assert told.endswith("route: {by: $.kind, otherwise: true} beside login, signup")
    assert world.apply(ACCOUNTS, EVENTS).lines == ()


@pytest.mark.parametrize("source", ["email", "$.email.work"])
def test_the_table_of_the_other_lines_hides_the_sensitive_values_of_all_tables(world: World, source: str) -> None:
    """It quarantines damaged objects and lines without a readable value, with e-mail addresses of sign-ups."""
    hidden = [f'{{name: email, type: string, source: "{source}", sensitive: true}}']
    accounts = a_share("log.accounts", taking("signup"), columns=hidden)
    with pytest.raises(DefinitionError, match=r"accounts.yaml:\d+: .*has sensitive columns that read .* log.events"):
        world.apply(accounts, EVENTS)
    world.apply(accounts, a_share("log.events", OTHERWISE, columns=hidden))
    assert world.apply().lines == ()


WHEN = "{name: time, source: [time, when],"
WIDER = a_share("log.accounts", taking("signup", "login", "view"))


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


def stopped(file: str) -> str:
    return file.replace(", route:", ", enabled: false, route:")


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


def rebuild(world: World, *tables: str) -> None:
    """Rebuilds the day in some tables, and then runs all stages."""
    for table in tables:
        assert run_rebuild(world.context, table, day=utc(NOON).date(), now=utc(LATER)).errors == ()
    finish(world)


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


def test_a_batch_that_failed_gives_each_table_its_own_try(app: World) -> None:
    found = put(app, "view", "signup")
    app.discover(NOON)
    plan = start_batch(app.context, None)
    assert plan is not None
    release_batch(app.context, plan)
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])


# deaths


def pairs(world: World) -> dict[str, set[str]]:
    """The tables that have an object registered, by its key."""
    statement = "SELECT object_key, table_name FROM prism_staging_objects JOIN prism_tables USING (prism_table_id)"
    found: dict[str, set[str]] = {}
    with world.context.database.begin() as connection:
        for key, table in connection.exec_driver_sql(statement):
            found.setdefault(key, set()).add(table)
    return found


@pytest.fixture
def faulty() -> Iterator[Callable[[str], None]]:
    """Makes a failpoint raise once."""

    def arm(point: str) -> None:
        failpoints.configure({"PRISM_FAILPOINTS": f"{point}=1*raise(InjectedFault)"})

    yield arm
    failpoints.configure({})


@pytest.mark.parametrize("point", ["discover.in_page", "discover.after_page", "discover.after_position"])
def test_a_death_of_a_listing_leaves_no_object_to_some_tables_only(
    app: World, faulty: Callable[[str], None], point: str
) -> None:
    found = put(app, "view", "signup")
    faulty(point)
    assert app.discover(NOON).errors
    assert all(tables == {"accounts", "events"} for tables in pairs(app).values())
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])
    assert undivided(app) == []


@pytest.mark.parametrize("point", ["stream.after_put_quarantine", "stream.in_commit", "stream.after_commit"])
def test_a_death_of_a_batch_leaves_each_line_to_one_table(
    app: World, faulty: Callable[[str], None], point: str
) -> None:
    found = put(app, "view", "signup", extra=[b"{"])
    app.discover(NOON)
    faulty(point)
    with suppress(failpoints.InjectedFault):
        run_stream(app.context, now=utc(NOON))
    with app.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_stream_batches SET heartbeat_time = to_timestamp(0)")
        connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL")
    for _ in range(3):
        finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])
    assert ledgers(app) == {"accounts": (3, 1, 0, 2), "events": (3, 1, 1, 1)}
    assert undivided(app) == []


@pytest.mark.parametrize("point", ["apply.in_table", "apply.after_deal"])
def test_a_death_of_an_apply_changes_no_route_and_no_object(
    app: World, faulty: Callable[[str], None], point: str
) -> None:
    put(app, "view")
    app.discover(NOON)
    before = pairs(app)
    faulty(point)
    with pytest.raises(failpoints.InjectedFault):
        app.apply(WIDER, a_share("log.views", taking("click")))
    assert pairs(app) == before
    app.apply(WIDER, a_share("log.views", taking("click")))
    assert pairs(app) == {key: {"accounts", "events", "views"} for key in before}


# one table's matters leave the others alone


def test_an_erasure_of_one_table_leaves_the_rows_and_ledgers_of_the_others(app: World) -> None:
    found = put(app, "view", "signup", "login", extra=[b"{"])
    finish(app)
    gone, kept = found["signup"][0], found["login"]
    others = (app.ids("log.events"), ledgers(app)["events"])
    run_erase(app.context, "log.accounts", f"id = {gone}", rows=1, now=utc(LATER))
    finish(app)
    assert app.ids("log.accounts") == kept
    assert (app.ids("log.events"), ledgers(app)["events"]) == others
    later = put(app, "signup", "view")
    finish(app)
    assert app.ids("log.accounts") == sorted(kept + later["signup"])
    assert undivided(app) == []


def test_a_replay_of_one_table_leaves_the_others(app: World) -> None:
    put(app, "view", extra=[b'{"kind": "signup", "id": 1, "when": "2026-03-01T12:00:00Z"}'])
    finish(app)
    assert ledgers(app) == {"accounts": (2, 0, 1, 1), "events": (2, 1, 0, 1)}
    others = (app.ids("log.events"), ledgers(app)["events"])
    app.apply(ACCOUNTS.replace("{name: time,", "{name: time, source: [time, when],"))
    assert run_replay(app.context, "log.accounts", now=utc(LATER)).errors == ()
    finish(app)
    assert app.ids("log.accounts") == [1]
    assert ledgers(app)["accounts"] == (2, 1, 0, 1)
    assert (app.ids("log.events"), ledgers(app)["events"]) == others
    assert undivided(app) == []


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


def test_garbage_collection_of_one_table_leaves_the_objects_of_the_others(app: World) -> None:
    put(app, "view", "signup")
    finish(app)
    before = (app.ids("log.accounts"), app.ids("log.events"), sorted((app.root / "buckets" / "staging").rglob("*.gz")))
    assert run_gc(app.context, names=["log.accounts"], now=utc("2026-04-01T00:00")).errors == ()
    assert (
        app.ids("log.accounts"),
        app.ids("log.events"),
        sorted((app.root / "buckets" / "staging").rglob("*.gz")),
    ) == before
    assert undivided(app) == []


def test_a_given_up_object_of_one_table_is_read_by_the_other(app: World) -> None:
    found = put(app, "view", "signup")
    app.discover(NOON)
    (key,) = pairs(app)
    give_up_object(app.context, f"s3://staging/{key}", ["log.accounts"])
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == ([], found["view"])
    assert undivided(app) == []
    retry_object(app.context, f"s3://staging/{key}")
    finish(app)
    assert app.ids("log.accounts") == found["signup"]
    assert undivided(app) == []
