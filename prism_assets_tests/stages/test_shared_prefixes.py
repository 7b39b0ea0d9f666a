"""One prefix feeds several tables: each line is in one of them, and the ledgers prove it together."""

from __future__ import annotations

import pytest

from prism_assets.domain.errors import DefinitionError, InvariantBroken
from prism_assets.stages.checks.intake import QUARANTINE_RATE
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.groups import DIVIDED_LINES
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.findings.set_aside import SET_ASIDE, set_aside_by
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.stages.shared_prefix import (
    ACCOUNTS,
    EVENTS,
    LATER,
    NOON,
    OTHERWISE,
    a_share,
    finish,
    ledgers,
    put,
    taking,
    undivided,
)
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World


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
