"""Streams of documents, from a table file to rows, through rebuild, replay and erasure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.test_rebuild import LATER, rebuild, switch
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
TABLE = """\
schema: log
table: events
streams:
  - name: events
    url: s3://staging/events/
    format: {json: {records: "$.Records[*]"}}
columns:
  - {name: time, type: timestamp}
  - {name: id, type: bigint}
  - {name: owner, type: string, source: $outer.owner}
  - {name: place, type: bigint, source: "@line"}
accept: {from: arrival}
"""


def document(*ids: Any, owner: str = "me") -> bytes:
    records = [{"time": f"{NOON}:00Z", "id": number} for number in ids]
    return json.dumps({"Records": records, "owner": owner}, indent=1).encode()


def refused(world: World, text: str) -> str:
    with pytest.raises(DefinitionError) as told:
        world.apply(text)
    return str(told.value).partition("events.yaml")[2]


def rows(world: World) -> list[tuple[Any, ...]]:
    return world.query("SELECT id, owner, place FROM log.events ORDER BY place")


def test_what_is_wrong_with_a_path_is_told_with_its_line(world: World) -> None:
    field = ":6: streams[0].format.json.records: "
    assert refused(world, TABLE.replace("$.Records[*]", "$.Records[0]")) == (
        f'{field}$.Records[0] is no path at its character 10; it takes keys and [*], as in $.logs[*]["a b"]'
    )
    assert refused(world, TABLE.replace('records: "$.Records[*]"', "")) == f"{field}is missing"
    assert refused(world, TABLE.replace("$outer.owner", "$outer.Records")) == (
        ":1: columns: owner reads $outer.Records: records of the stream events lie at $.Records[*], and it is the way "
        "to the records itself; $outer reads keys beside that way"
    )
    assert refused(world, TABLE.replace('    format: {json: {records: "$.Records[*]"}}\n', "")).startswith(
        ":1: columns: owner reads $outer.owner: the stream events has no documents"
    )


def test_records_are_rebuilt_by_the_path_that_they_were_read_by(world: World) -> None:
    plan = world.apply(TABLE)
    assert any(line.endswith("of documents with records at $.Records[*]") for line in plan.lines)
    assert world.apply(TABLE).lines == ()
    world.drop([], body=document(1, 2) + document(3, owner="you"))
    report = world.stream(NOON)
    assert (report.lines_in, report.rows_out, report.quarantined) == (3, 3, 0)
    switch(world)
    world.apply(TABLE.replace("$.Records[*]", "$.logs[*]"))
    assert rebuild(world).errors == ()
    world.catalog(LATER)
    assert rows(world) == [(1, "me", 1), (2, "me", 2), (3, "you", 3)]


def test_quarantined_records_are_replayed_with_the_values_around_them(world: World) -> None:
    world.apply(TABLE + 'reject: [{when: "id = 2", reason: not_yet}]\n')
    world.drop([], body=document(2) + b"{}" + document(2, owner="you"))
    assert world.stream(NOON).quarantined == 3
    world.apply(TABLE)
    assert run_replay(world.context, "log.events", now=utc(NOON)).rows_added == 2
    world.catalog(NOON)
    assert rows(world) == [(2, "me", 1), (2, "you", 3)]
