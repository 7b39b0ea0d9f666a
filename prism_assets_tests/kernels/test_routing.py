"""Lines that several tables read: each belongs to one of them, however hostile, and both ways of reading agree."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prism_assets.domain.streams.groups import Member, completed
from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_table, an_object
from prism_assets_tests.kernels.test_both_ways import HOSTILE, SCALARS

BY = "$.e.kind"
VALUES = ("x", "1", "true", "é", "text")


def tables(by: str, *lists: tuple[str, ...], **more: object) -> list[TableDefinition]:
    """Tables that take a list of values each, and one that takes the rest."""
    routes = [*(Route(by=by, values=values) for values in lists), Route(by=by, otherwise=True)]
    streams = [Stream(name="s", bucket="staging", key_prefix="", route=route) for route in routes]
    whole = completed([Member(str(number), stream) for number, stream in enumerate(streams)])
    columns = (a_column("text", "string", 2), a_column("rest", "json", 3, sources=("*",)))
    return [replace(a_table(*columns), streams=(item.stream,), **more) for item in whole]  # type: ignore[arg-type]


MEMBERS = st.lists(st.tuples(st.sampled_from(["e", "e", "\\u0065", "time", "text"]), st.one_of(
    SCALARS,
    SCALARS.map(lambda value: f'{{"kind": {value}}}'),
    st.sampled_from([f'{{"kind":"{value}"}}' for value in VALUES]),
    st.sampled_from(['{"kind":1}', '{"kind":true,"a":[]}', '{"a":{}, "k\\u0069nd":"\\u0078"}']),
    st.just('{"kind":"x","kind":"x"}'),
)), max_size=3)  # fmt: skip
ROUTED = MEMBERS.map(lambda pairs: ("{" + ",".join(f'"{key}" : {value}' for key, value in pairs) + "}").encode())
LINES = st.lists(st.one_of(ROUTED, ROUTED, ROUTED.map(lambda line: line[:-1]), HOSTILE), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(LINES)
@example([b'{"e":{"kind":"x"},"e":{"kind":"x"}}', b'{"e":{"kind":"x"},"text":"\xff"}'])
@example([b'{"e":{"kind":"x"},"text":"\\ud800"}', b'{"e":{"kind":"y"}} {'])
def test_each_line_belongs_to_one_table_by_both_ways(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        found = [lake.both(an_object(*lines), table).result for table in tables(BY, ("x", "1"), ("true", "é", "text"))]
    assert [result.failure for result in found] == [None] * 3
    assert len({result.lines_in for result in found}) == 1
    assert sum(result.lines_in - result.lines_elsewhere for result in found) == found[0].lines_in


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        ('{"kind":"a"}', 0),
        ('{"kind":1}', 0),
        ('{"kind":"1"}', 0),
        ('{"kind":1.0}', 1),
        ('{"kind":null}', 1),
        ('{"kind":["a"]}', 1),
        ("{}", 1),
        ('{"kind":"a","kind":"a"}', 1),
        ('{"kind":"a"', 1),
        ('["a"]', 1),
        ('{"kind":"b"', 1),
        ('{"z":' + "[" * 130 + "]" * 130 + ',"kind":"a"}', 1),
    ],
)
def test_a_line_without_one_readable_value_belongs_to_the_rest(line: str, owner: int, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    found = [lake.both(an_object(line), table).result for table in tables("kind", ("a", "1"))]
    assert [result.lines_elsewhere for result in found] == [owner, 1 - owner]


def test_fields_of_lines_of_other_tables_are_not_undefined(tmp_path: Path) -> None:
    mine, rest = tables("kind", ("a",))
    columns = tuple(column for column in mine.columns if column.name != "rest")
    lines = an_object({"kind": "a", "mine": 1}, {"kind": "b", "theirs": 1})
    lake = Lake(tmp_path)
    found = [
        {field.key for field in lake.both(lines, replace(table, columns=columns)).result.undefined}
        for table in (mine, rest)
    ]
    assert found == [{"kind", "mine"}, {"kind", "theirs"}]


def test_the_deciding_field_stays_among_collected_ones(tmp_path: Path) -> None:
    mine, _ = tables("kind", ("a",))
    (row,) = Lake(tmp_path).both(an_object({"kind": "a", "z": 1}), mine).rows
    assert row["rest"] == '{"kind":"a","z":1}'


def test_a_table_for_every_line_reads_as_one_without_a_route(tmp_path: Path) -> None:
    mine, rest = tables("kind", ("a",))
    lines = an_object(*({"kind": "a", "text": f"{number}"} for number in range(100)), f'{{"time":"{TIME}"}}')
    lake = Lake(tmp_path)
    routed, plain = lake.both(lines, mine), lake.both(lines, replace(mine, streams=()))
    assert routed.rows == plain.rows[:100]
    assert (routed.result.lines_elsewhere, lake.both(lines, rest).result.lines_elsewhere) == (1, 100)
