"""Streams of text lines, from a table file to rows, replays, rebuilds and erasures."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.drafting.cases import run_cases
from prism_assets.drafting.proposals import propose_cases
from prism_assets.drafting.trial import read_table, try_table
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.test_rebuild import LATER, rebuild, switch
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
TABLE = r"""
schema: log
table: events
streams:
  - name: events
    url: s3://staging/events/
    format: {csv: {columns: [time, id, path], nulls: ["-"]}}
columns:
  - {name: time, type: timestamp}
  - {name: id, type: bigint}
  - {name: path, type: string}
accept: {from: arrival}
"""
CSV = '{csv: {columns: [time, id, path], nulls: ["-"]}}'
REGEX = r"""{regex: '^(?P<time>\S+),(?P<id>\d+),"(?P<path>[^"]*)"$'}"""
HEADER = "{csv: {header: true}}"


def a_line(number: int, path: str = "-") -> str:
    return f"2026-03-01T12:00:{number % 60:02}Z,{number},{path}\n"


def drop(world: World, *lines: str) -> None:
    world.drop([], body=gzip.compress("".join(lines).encode()))


def refused(world: World, form: str, table: str = TABLE) -> str:
    with pytest.raises(DefinitionError) as told:
        world.apply(table.replace(CSV, form))
    return str(told.value).partition("events.yaml")[2]


def rows(world: World) -> list[tuple[object, ...]]:
    return world.query("SELECT id, path FROM log.events ORDER BY id")


def test_lines_become_rows_and_each_is_in_the_ledger(world: World) -> None:
    (line,) = [line for line in world.apply(TABLE).lines if "create stream" in line]
    assert line.endswith("at s3://staging/events/ of text lines with 3 fields")
    assert world.apply(TABLE).lines == ()
    drop(world, a_line(1), a_line(2, '"a,b"'), "\n", '2026-03-01T12:00:00Z,3,"open\n')
    report = world.stream(NOON)
    world.catalog(NOON)
    assert (report.lines_in, report.rows_out, report.quarantined) == (3, 2, 1)
    assert rows(world) == [(1, None), (2, "a,b")]


def test_what_is_wrong_with_a_format_is_told_with_its_line(world: World) -> None:
    assert refused(world, "{csv: {columns: [a], delimiter: '::'}}").startswith(
        ":7: streams[0].format.csv.delimiter: must be one printable ASCII character or a tab"
    )
    assert refused(world, "{csv: {}}").startswith(":7: streams[0].format.csv.columns: must name the fields in order")
    assert refused(world, "{csv: {header: true}, regex: x}") == (
        ":7: streams[0].format.regex: must not stand beside csv: objects of a stream have one format"
    )
    assert refused(world, "{csv: {header: true}, nulls: []}") == (
        ":7: streams[0].format.nulls: stands beside regex, or inside csv"
    )
    assert refused(world, "{regex: '(?P<time>a'}") == (
        ":7: streams[0].format.regex: is no regular expression of RE2 with named groups: missing ): (?P<time>a"
    )
    assert "write (?:…) for a group without a name" in refused(world, "{regex: '(?P<time>a)(b)'}")
    assert "has no named group" in refused(world, "{regex: a}")
    assert "which cuts characters in two" in refused(world, r"{regex: '(?P<time>\C)'}")
    assert r"has time twice" in refused(world, "{regex: '(?P<time>a)(?P<time>b)'}")
    assert refused(world, CSV, TABLE.replace("id, type: bigint", "id, type: bigint, source: idd")) == (
        ":1: columns: id reads idd, which no format of its streams has as a field; did you mean id?"
    )


def test_a_mended_expression_makes_rows_of_the_lines_that_did_not_match(world: World) -> None:
    world.apply(TABLE.replace(CSV, REGEX.replace(r"\d+", "x")))
    drop(world, *(a_line(number, '"/"') for number in range(1, 8)))
    assert world.stream(NOON).quarantined == 7
    world.apply(TABLE.replace(CSV, REGEX))
    assert run_replay(world.context, "log.events", now=utc(NOON)).rows_added == 7
    world.catalog(NOON)
    assert rows(world) == [(number, "/") for number in range(1, 8)]


def test_a_rebuild_divides_lines_as_the_table_file_says_now(world: World) -> None:
    world.apply(TABLE)
    for number in range(3):
        drop(world, a_line(number, "x"))
    world.stream(NOON)
    switch(world)
    renamed = TABLE.replace("[time, id, path]", "[time, id, other]")
    world.apply(renamed.replace("path, type", "path, source: other, type"))
    assert rebuild(world).errors == ()
    world.catalog(LATER)
    assert rows(world) == [(number, "x") for number in range(3)]


def test_objects_keep_their_header(world: World) -> None:
    world.apply(TABLE.replace(CSV, HEADER))
    for number in range(3):
        drop(world, "id,time,path\n", f"{number},2026-03-01T12:00:00Z,x\n")
    world.stream(NOON)
    switch(world)
    for table in (TABLE, f"{TABLE}description: again\n"):
        world.apply(table)
        assert rebuild(world).errors == ()
        world.catalog(LATER)
        assert rows(world) == [(number, "x") for number in range(3)]


def test_a_user_is_erased_from_rows_and_from_quarantined_lines(world: World) -> None:
    table = TABLE + "reject: [{when: \"path = 'bad'\", reason: odd}]\n"
    world.apply(table)
    drop(world, *(a_line(number % 3, "x") for number in range(9)), a_line(1, "bad"), a_line(2, "bad"), '"open 1\n')
    world.stream(NOON)
    switch(world)
    plan = plan_erasure(world.context, "log.events", "id = 1")
    assert (plan.lines, plan.lines_withheld) == (1, 1)
    (status,) = run_erase(world.context, "log.events", "id = 1", rows=3).erasures
    assert (status.lines_erased, status.lines_withheld, status.rows_erased) == (1, 1, 3)
    with world.context.database.begin() as connection:
        key = connection.exec_driver_sql("SELECT DISTINCT object_key FROM prism_quarantine").scalar_one()
    text = gzip.decompress(world.context.stores.get("lake", key)).decode()
    assert '\\"id\\":\\"2\\"' in text
    assert "open 1" not in text


def test_a_table_file_is_tried_on_text_and_its_cases_are_fields(world: World, tmp_path: Path) -> None:
    world.apply(TABLE)
    path = world.settings.tables_dir / "events.yaml"
    sample = tmp_path / "sample.gz"
    sample.write_bytes(gzip.compress("".join([*map(a_line, range(99)), '"open\n']).encode()))
    table = read_table(path)
    trial = try_table(world.settings.store, table, str(sample), now=utc(NOON))
    assert (trial.lines, trial.rows, trial.quarantined) == (100, 99, {"bad_text": 1})
    cases = propose_cases(world.settings.store, table, str(sample), now=utc(NOON), most=2)
    assert '"line": {"time":"2026-03-01T12:00:01Z","id":"1"}' in cases[1]
    path.with_suffix(".test.jsonl").write_text("\n".join(cases))
    assert run_cases(path).failures == ()
