"""Join tables: how they are applied, and how lines of their streams become changes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.domain.records.joins import hidden_column_id
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.checks.days import CATALOG_AGREES
from prism_assets.stages.checks.intake import ROWS_BALANCE
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.rebuild.run import preview_days
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, utc
from prism_assets_tests.stages.join_tables import a_join, back, front
from prism_assets_tests.world import World

NOON = "2026-03-01T12:10"
COLOR = "  - {name: color, type: string, group: front}\n"


def definition(world: World, name: str) -> TableDefinition:
    (table,) = world.context.choose_tables([name])
    return table


def ids(world: World, name: str) -> dict[str, int]:
    return {column.name: column.column_id for column in definition(world, name).columns}


def changes(world: World) -> list[tuple[Any, ...]]:
    columns = "request_id, page, version, tries, _p_group, _p_deleted, _p_line, _p_object"
    return world.query(f"SELECT {columns} FROM log.request_changes ORDER BY _p_group DESC, _p_line")


def test_a_join_table_is_planned_as_two_tables(world: World) -> None:
    assert world.apply(a_join()).lines == (
        "take s3://lake/ as the lake of this database",
        "create table log.request with 5 columns",
        "create table log.request_changes with 9 columns",
        "create stream front of log.request_changes at s3://staging/front/",
        "create stream back of log.request_changes at s3://staging/back/",
    )
    assert world.apply(a_join()).lines == ()


def test_an_added_column_goes_to_both_tables_with_one_id(world: World) -> None:
    world.apply(a_join())
    assert world.apply(a_join(columns=COLOR)).lines == (
        "add column color string to log.request",
        "update log.request: join",
        "add column color string to log.request_changes",
        "change stream back of log.request_changes at s3://staging/back/",
    )
    records = ids(world, "log.request")
    assert records == {"request_id": 1, "time": 2, "page": 3, "version": 4, "tries": 5, "color": 6}
    hidden = {name: hidden_column_id(name) for name in ("_p_group", "_p_deleted", "_p_object", "_p_line")}
    assert ids(world, "log.request_changes") == {**records, **hidden}


def test_lines_of_all_streams_become_changes_that_anybody_reads(world: World) -> None:
    world.apply(a_join())
    world.drop([front("a", "2026-03-01T12:00"), front("b", "2026-03-01T12:01", "/b")], stream="front")
    world.drop([back("a", "2026-03-01T12:05", 4), back("b", "2026-03-01T12:06", 5, op="D")], stream="back")
    world.stream("2026-03-01T13:00")
    world.catalog("2026-03-01T13:00")
    found = changes(world)
    assert [row[:-1] for row in found] == [
        ("a", "/", None, None, "front", False, 1),
        ("b", "/b", None, None, "front", False, 2),
        ("a", None, 4, 4, "back", False, 1),
        ("b", None, 5, 5, "back", True, 2),
    ]
    assert sorted({row[-1] for row in found}) == [1, 2]
    assert found[0][-1] == found[1][-1]


def test_a_file_may_be_about_the_records_of_other_changes_only_under_another_name(world: World) -> None:
    world.apply(a_join())
    for text, told in REFUSED.items():
        with pytest.raises(DefinitionError, match=re.escape(told)):
            world.apply(text)
    assert definition(world, "log.request").version == definition(world, "log.request_changes").version == 1


NAMES = "to have it otherwise, make a table of another name"
REFUSED = {
    a_join(key="[request_id, page]").replace(", group: front}\n  - {name: version", "}\n  - {name: version"): (
        f"request.yaml:13: key: records are made by what it says, and stay as they are; {NAMES}"
    ),
    a_join(groups="{front: null, back: {sequence: [version]}}"): "request.yaml:14: groups: records are made by",
    a_join(groups="{front: null, back: {sequence: [version], owner: true}, side: null}"): "groups: records are made by",
    a_join(window="4h"): "request.yaml:15: window: records are made by",
    a_join(lateness="2h"): "request.yaml:16: lateness: records are made by",
    a_join(buckets="64"): "request.yaml:18: buckets: records are made by",
    a_join(after="delete"): "request.yaml:18: after: records are made by",
    a_join().replace("tries, type: bigint, group: back", "tries, type: bigint, group: front"): (
        f"request.yaml:1: columns: tries keeps its group and its merge, as records are made by them; {NAMES}"
    ),
    a_join().replace("type: bigint, group: back", "type: bigint, group: back, merge: last_non_null"): (
        "columns: tries keeps its group and its merge"
    ),
    a_table("log.request"): "log.request is a join table, and no table becomes a log table",
}


def test_the_name_of_the_log_of_changes_is_taken(world: World) -> None:
    with pytest.raises(DefinitionError, match=r"log\.request_changes is also defined in"):
        world.apply(a_join(), a_table("log.request_changes"))


def test_no_log_table_becomes_a_part_of_a_join_table(world: World) -> None:
    world.apply(a_table("log.request_changes"))
    (world.settings.tables_dir / "request_changes.yaml").unlink()
    with pytest.raises(DefinitionError, match=r"log\.request_changes is a log table, and no table becomes the log of"):
        world.apply(a_join())
    assert world.context.choose_tables(None) == [definition(world, "log.request_changes")]


def test_of_a_wrong_file_neither_table_is_changed(world: World) -> None:
    world.apply(a_join())
    (world.settings.tables_dir / "request.yaml").write_text(a_join(columns=COLOR, window="4h"))
    plan = apply_sound(world.context, world.settings.tables_dir, utc("2026-03-01T00:00"))
    assert (len(plan.problems), plan.tables) == (1, ())


def test_another_way_to_publish_and_a_new_stream_are_changes(world: World) -> None:
    world.apply(a_join())
    more = '  - {name: side, url: "s3://staging/side/", group: front}\n'
    assert world.apply(a_join(streams=more, publish="{every: 10m}", changes="{retention_days: 30}")).lines == (
        "update log.request: join",
        "create stream side of log.request_changes at s3://staging/side/",
        "keep days of log.request_changes for 30 days",
    )


def test_a_join_table_is_renamed_and_retired_as_a_whole(world: World) -> None:
    world.apply(a_join())
    (world.settings.tables_dir / "request.yaml").unlink()
    lines = world.apply(a_join(was="log.request").replace("table: request", "table: visit")).lines
    assert [line.partition(":")[0] for line in lines if line.startswith("rename")] == [
        "rename log.request to log.visit",
        "rename log.request_changes to log.visit_changes",
    ]
    world.apply(a_join(was="log.request", retired="true").replace("table: request", "table: visit"))
    assert definition(world, "log.visit").retired
    assert definition(world, "log.visit_changes").streams == ()


def test_whoever_names_a_join_table_means_its_log_where_streams_are_worked_on(world: World) -> None:
    world.apply(a_join(), a_table())
    names = {str(table.name) for table in world.context.choose_logs(["log.request", "log.events"])}
    assert names == {"log.events", "log.request_changes"}
    assert "log.request" not in {str(table.name) for table in world.context.choose_logs(None)}
    with pytest.raises(WrongUse, match=r"there is no table log\.nothing"):
        world.context.choose_logs(["log.nothing"])
    world.drop([front("a", "2026-03-01T12:00")], stream="front")
    assert run_discover(world.context, now=utc(NOON), names=["log.request"]).new == 1
    assert run_stream(world.context, now=utc(NOON), names=["log.request"]).rows_out == 1


def test_lines_of_changes_that_may_be_folded_stay_in_quarantine_and_the_way_out_is_told(world: World) -> None:
    world.apply(a_join())
    world.drop([], body=as_lines([front("a", "2026-03-01T12:00")]) + b"broken\n", stream="front")
    world.stream(NOON)
    world.apply(a_join(columns=COLOR))
    report = run_replay(world.context, "log.request", now=utc("2026-03-03T12:00"))
    assert (report.with_rows, report.rebuilt, report.days, report.errors) == (1, (), (), ())
    assert "and stay: changes are folded into records once; send the lines again" in report.sentences[0]


def test_no_command_breaks_with_records_that_no_stream_feeds(world: World) -> None:
    world.apply(a_join())
    world.drop([front("a", "2026-03-01T12:00")], stream="front")
    for now in (NOON, "2026-03-02T00:10", "2026-03-02T01:00"):
        world.stream(now)
        world.merge(now, everything=True)
        world.catalog(now)
    assert [status.table for status in read_status(world.context, now=utc(NOON))] == [
        "log.request",
        "log.request_changes",
    ]
    outcomes = run_checks(
        world.context, [ROWS_BALANCE, CATALOG_AGREES], names=["log.request"], limits={}, now=utc(NOON)
    )
    assert [outcome.passed for outcome in outcomes] == [True, True]
    with pytest.raises(WrongUse, match="belongs to a join table"):
        preview_days(world.context, "log.request_changes", day=utc(NOON).date(), now=utc(NOON))
    assert len(changes(world)) == 1
    assert world.query("SELECT count(*) FROM log.request") == [(0,)]
