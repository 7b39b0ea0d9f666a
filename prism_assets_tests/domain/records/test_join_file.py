"""Files of join tables: the content of a good one, and the message for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.records.joins import Group, JoinOptions, Member, PublishPolicy
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets_tests.builders import a_table

PATH = "tables/log/request.yaml"
GOOD = """\
schema: log
table: request
key: [request_id]
streams:
  - {name: front, url: "s3://staging/front/", group: front}
  - {name: back, url: "s3://staging/back/", group: back, delete: "op = 'D'"}
groups:
  front: {sequence: [sent_at]}
  back: {sequence: [version], owner: true}
partition: {column: time, timezone: Asia/Tokyo}
columns:
  - {name: request_id, type: string, required: true}
  - {name: time, type: timestamp}
  - {name: sent_at, type: timestamp}
  - {name: page, type: string, group: front}
  - {name: version, type: bigint}
  - {name: tries, type: bigint, group: back, merge: last_non_null}
  - {name: op, type: string, stored: false}
window: 3h
lateness: 1h
after: settle
buckets: 32
publish: {every: 10m, dirty: 0.2, stale: 2h}
changes: {retention_days: 7}
"""


def problems(text: str) -> list[str]:
    """Returns all problems of a file, without its path."""
    with pytest.raises(DefinitionError) as raised:
        parse_table_file(text, PATH)
    return [line.removeprefix(f"{PATH}:") for line in str(raised.value).splitlines()]


def with_change(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def changed(old: str, new: str) -> list[str]:
    """The problems of the good file with one thing changed."""
    return problems(with_change(old, new))


def test_a_good_file_says_all_of_it() -> None:
    table = parse_table_file(GOOD, PATH)
    assert table.join == JoinOptions(
        key=("request_id",),
        groups=(
            Group(name="front", sequence=("sent_at",)),
            Group(name="back", sequence=("version",), owner=True),
        ),
        members=(
            Member(column="page", group="front"),
            Member(column="tries", group="back", merge="last_non_null"),
        ),
        window_seconds=10_800,
        lateness_seconds=3_600,
        after="settle",
        buckets=32,
        publish=PublishPolicy(every_seconds=600, dirty=0.2, stale_seconds=7_200),
    )
    assert [(stream.group, stream.delete) for stream in table.streams] == [("front", None), ("back", "op = 'D'")]
    assert table.changes_days == 7
    assert TableDefinition.from_json(table.to_json()) == table


def test_what_is_not_said_has_a_default() -> None:
    text = with_change("  front: {sequence: [sent_at]}\n", "  front:\n")
    for line in ("after: settle\n", "buckets: 32\n", "publish: {every: 10m, dirty: 0.2, stale: 2h}\n"):
        text = text.replace(line, "")
    text = text.replace("changes: {retention_days: 7}\n", "").replace(
        "name: sent_at, type: timestamp", "name: sent_at, type: timestamp, group: front"
    )
    table = parse_table_file(text, PATH)
    assert table.join is not None
    assert table.join.groups[0] == Group(name="front", sequence=("time",))
    assert (table.join.after, table.join.buckets, table.join.publish) == ("settle", 16, PublishPolicy())
    assert table.changes_days is None


def test_key_and_partition_column_are_required() -> None:
    table = parse_table_file(with_change(", required: true", ""), PATH)
    assert [column.name for column in table.columns if column.required] == ["request_id", "time"]


def test_a_join_table_has_limits_of_its_own_that_no_other_table_has() -> None:
    limits = "checks: {too_late_rate: 0.02, join_rate: 0.9}\n"
    found = parse_table_file(GOOD + limits, PATH).limits
    assert (found.too_late_rate, found.join_rate, found.quarantine_rate) == (0.02, 0.9, 0.01)
    assert problems(a_table() + limits)[0].endswith(
        "checks.too_late_rate: is not a known field "
        "(known: closing_hours, lag_minutes, quarantine_rate, unmerged_hours)"
    )


def test_records_may_live_for_ever_and_then_need_no_lateness() -> None:
    text = with_change("window: 3h\nlateness: 1h\n", "window: forever\n")
    join = parse_table_file(text, PATH).join
    assert join is not None
    assert (join.window_seconds, join.lateness_seconds) == (None, 0)


MISTAKES: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("join_file_mistakes.toml").read_text())


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_told_with_its_place(name: str) -> None:
    case = MISTAKES[name]
    assert case["told"] in changed(case["old"], case["new"])


@pytest.mark.parametrize("name", MISTAKES)
def test_no_field_is_told_of_twice(name: str) -> None:
    fields = [line.split(": ")[1] for line in changed(MISTAKES[name]["old"], MISTAKES[name]["new"])]
    assert len(fields) == len(set(fields))


def test_other_tables_have_no_groups() -> None:
    text = """\
schema: log
table: visits
streams:
  - {name: visits, url: "s3://staging/visits/", group: front, delete: "n = 1"}
columns:
  - {name: time, type: timestamp, merge: max}
  - {name: n, type: bigint, group: front}
"""
    told = "has an effect in join tables only; these state their key, groups and window at the top"
    fields = ("6: columns[0].merge", "7: columns[1].group", "4: streams[0].group", "4: streams[0].delete")
    assert problems(text) == [f"{field}: {told}" for field in fields]
