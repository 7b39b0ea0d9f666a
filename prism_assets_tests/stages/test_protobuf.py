"""Streams of protobuf messages, from a table file with a descriptor set beside it to rows and ledger."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.drafting.cases import run_cases
from prism_assets.drafting.trial import read_table, try_table
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import utc
from prism_assets_tests.kernels.protoc import descriptor_set, encoded, framed
from prism_assets_tests.stages.test_rebuild import LATER, close, rebuild, switch
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
TABLE = """\
schema: log
table: events
streams:
  - name: events
    url: s3://staging/events/
    format: {protobuf: {descriptor: page.desc, message: shop.PageView}}
columns:
  - {name: time, type: timestamp, time_unit: milliseconds}
  - {name: id, type: bigint, source: $.user.id}
  - {name: path, type: string}
accept: {from: arrival}
"""


def page(number: int, path: str = "/") -> bytes:
    time = int(utc(NOON).timestamp() * 1000) + number
    return encoded("page.proto", "shop.PageView", f'time: {time} user {{ id: {number} }} path: "{path}"')


def with_descriptors(world: World, **files: str) -> None:
    folder = world.settings.tables_dir
    folder.mkdir(exist_ok=True)
    for name, proto in files.items():
        (folder / f"{name}.desc").write_bytes(descriptor_set(proto))


def refused(world: World, text: str) -> str:
    with pytest.raises(DefinitionError) as told:
        world.apply(text)
    return str(told.value).partition("events.yaml")[2]


def test_messages_become_rows_and_each_is_in_the_ledger(world: World) -> None:
    with_descriptors(world, page="page.proto")
    plan = world.apply(TABLE)
    (line,) = [line for line in plan.lines if "create stream" in line]
    assert "of protobuf messages shop.PageView (descriptor set " in line
    assert world.apply(TABLE).lines == ()
    world.drop([], body=framed([page(1), page(2, "/x"), b"\x07"]))
    report = world.stream(NOON)
    world.catalog(NOON)
    assert (report.lines_in, report.rows_out, report.quarantined) == (3, 2, 1)
    assert world.query("SELECT id, path FROM log.events ORDER BY id") == [(1, "/"), (2, "/x")]


def test_objects_keep_the_format_of_their_first_claim(world: World) -> None:
    with_descriptors(world, page="page.proto", later="page_later.proto")
    world.apply(TABLE)
    world.drop([], body=framed([page(1)]))
    world.stream(NOON)
    other = TABLE.replace("page.desc", "later.desc").replace(", source: $.user.id", ", source: positions")
    read, changed = world.apply(other).lines
    assert read == "read column id of log.events from the key positions instead of $.user.id"
    assert changed.startswith(
        "change stream events of log.events at s3://staging/events/ of protobuf messages shop.Page"
    )
    world.drop([], body=framed([page(2)]))
    world.stream(NOON)
    world.catalog(NOON)
    assert world.query("SELECT id, path FROM log.events ORDER BY time") == [(1, "/"), (None, "/")]


def test_what_is_wrong_with_a_format_is_told_with_its_line(world: World) -> None:
    with_descriptors(world, page="page.proto", order="order.proto")
    assert refused(world, TABLE.replace("page.desc", "pages.desc")) == (
        ":6: streams[0].format.protobuf.descriptor: pages.desc, from the folder of this file, cannot be read: "
        "No such file or directory"
    )
    assert refused(world, TABLE.replace("PageView", "PageViw")).startswith(
        ":6: streams[0].format.protobuf: the descriptor set has no message shop.PageViw; did you mean shop.PageView?"
    )
    assert refused(world, TABLE.replace("page.desc", "order.desc")).startswith(
        ":6: streams[0].format.protobuf: the descriptor set has no message shop.PageView"
    )
    assert refused(world, TABLE.replace("$.user.id", "$.usr.id")) == (
        ":1: columns: id reads usr, which no message has as a field; did you mean user?"
    )
    assert refused(world, TABLE.replace("{protobuf: {descriptor: page.desc, message: shop.PageView}}", "avro")) == (
        ':6: streams[0].format: must be json, parquet, {json: {records: "$.Records[*]"}}, {csv: {header: true}}, '
        "{regex: PATTERN}, or {protobuf: {descriptor: FILE, message: NAME}}"
    )
    assert "is missing" in refused(world, TABLE.replace("descriptor: page.desc, ", ""))


def test_a_table_file_is_tried_on_messages_and_its_cases_are_lines(world: World, tmp_path: Path) -> None:
    with_descriptors(world, page="page.proto")
    world.apply(TABLE)
    path = world.settings.tables_dir / "events.yaml"
    sample = tmp_path / "sample.gz"
    sample.write_bytes(gzip.compress(framed([page(1), page(2), b"\x07", *map(page, range(3, 50))])))
    table = read_table(path)
    trial = try_table(world.settings.store, table, str(sample), now=utc(NOON))
    assert (trial.lines, trial.rows, trial.quarantined) == (50, 49, {"bad_message": 1})
    assert try_table(world.settings.store, table, str(sample), now=utc(NOON), lines=10).lines == 10
    case = {"line": {"time": 1772366400000, "user": {"id": 7}, "path": "/x"}, "row": {"id": 7, "path": "/x"}}
    path.with_suffix(".test.jsonl").write_text(json.dumps(case) + "\n")
    report = run_cases(path)
    assert report.failures == ()


@pytest.mark.parametrize("messages", [1, 2])
def test_objects_are_rebuilt_from_messages_though_their_stream_is_gone(world: World, messages: int) -> None:
    with_descriptors(world, page="page.proto")
    world.apply(TABLE)
    for first in (1, 11, 21):
        world.drop([], body=framed([page(first + number) for number in range(messages)]))
    world.stream(NOON)
    switch(world)
    before = world.query("SELECT id, path FROM log.events ORDER BY id")
    assert len(before) == 3 * messages
    moved = TABLE.replace("s3://staging/events/", "s3://staging/events2/")
    for table in (moved, f"{moved}description: again\n"):
        world.apply(table)
        assert rebuild(world).errors == ()
        world.catalog(LATER)
        assert world.query("SELECT id, path FROM log.events ORDER BY id") == before


def test_lines_of_before_are_rebuilt_though_the_stream_holds_messages_by_now(world: World) -> None:
    with_descriptors(world, page="page.proto")
    world.apply(TABLE.replace("    format: {protobuf: {descriptor: page.desc, message: shop.PageView}}\n", ""))
    time = int(utc(NOON).timestamp() * 1000)
    for number in range(3):
        world.drop([{"time": time, "user": {"id": number}, "path": "/"}])
    world.stream(NOON)
    switch(world)
    for table in (TABLE, f"{TABLE}description: again\n"):
        world.apply(table)
        assert rebuild(world).errors == ()
        world.catalog(LATER)
        assert world.query("SELECT id FROM log.events ORDER BY id") == [(0,), (1,), (2,)]


def test_fields_that_a_later_descriptor_set_knows_are_filled_by_a_rebuild(world: World) -> None:
    with_descriptors(world, page="page.proto", later="page_later.proto")
    world.apply(TABLE.replace("  - {name: id, type: bigint, source: $.user.id}\n", ""))
    time = int(utc(NOON).timestamp() * 1000)
    texts = [f'time: {time} path: "/{number}" campaign: "spring {number}"' for number in range(3)]
    world.drop([], body=framed([encoded("page_later.proto", "shop.PageView", text) for text in texts]))
    world.stream(NOON)
    switch(world)
    later = TABLE.replace("id, type: bigint, source: $.user.id", "campaign, type: string")
    world.apply(later.replace("page.desc", "later.desc"))
    assert rebuild(world).errors == ()
    world.catalog(LATER)
    rows = world.query("SELECT path, campaign FROM log.events ORDER BY path")
    assert rows == [(f"/{number}", f"spring {number}") for number in range(3)]


def test_messages_of_another_name_are_rebuilt_as_what_they_were(world: World) -> None:
    with_descriptors(world, page="page.proto", order="order.proto")
    table = TABLE.replace("id, type: bigint, source: $.user.id", "status, type: integer")
    table = table.replace("  - {name: path, type: string}\n", "")
    world.apply(table)
    time = int(utc(NOON).timestamp() * 1000)
    world.drop([], body=framed([encoded("page.proto", "shop.PageView", f"time: {time} status: 404")]))
    world.stream(NOON)
    switch(world)
    world.apply(table.replace("page.desc", "order.desc").replace("shop.PageView", "shop.Order"))
    assert rebuild(world).errors == ()
    world.catalog(LATER)
    assert world.query("SELECT status FROM log.events") == [(404,)]


def test_messages_of_another_name_are_replayed_as_what_they_were(world: World) -> None:
    with_descriptors(world, page="page.proto", order="order.proto")
    table = TABLE.replace("id, type: bigint, source: $.user.id", "status, type: integer")
    table = table.replace("  - {name: path, type: string}\n", "")
    world.apply(table + 'reject: [{when: "status = 404", reason: not_yet}]\n')
    time = int(utc(NOON).timestamp() * 1000)
    world.drop([], body=framed([encoded("page.proto", "shop.PageView", f"time: {time} status: 404")]))
    world.stream(NOON)
    world.apply(table.replace("page.desc", "order.desc").replace("shop.PageView", "shop.Order"))
    assert run_replay(world.context, "log.events", now=utc(NOON)).rows_added == 1
    world.catalog(NOON)
    assert world.query("SELECT status FROM log.events") == [(404,)]


def test_a_rebuilt_object_of_messages_is_repaired_though_its_stream_is_gone(world: World) -> None:
    with_descriptors(world, page="page.proto")
    world.apply(TABLE)
    world.drop([], body=framed([page(1), page(2)]))
    world.stream(NOON)
    close(world)
    world.apply(TABLE.replace("s3://staging/events/", "s3://staging/events2/"))
    assert rebuild(world).errors == ()
    world.catalog(LATER)
    (rebuilt,) = [item.key for item in world.context.stores.list("lake", "") if "/delayed/" in item.key]
    before = world.context.stores.get("lake", rebuilt)
    world.context.stores.delete("lake", [rebuilt])
    assert run_repair(world.context).repaired == 1
    (repaired,) = [item.key for item in world.context.stores.list("lake", "") if "/delayed/" in item.key]
    assert repaired != rebuilt
    assert world.context.stores.get("lake", repaired) == before
