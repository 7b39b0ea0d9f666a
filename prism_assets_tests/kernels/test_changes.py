"""Lines of the streams of a join table become changes, whichever way they are read: of one group, with an identity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prism_assets.domain.records.change_log import changes_of
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.kernels.expressions.check import problems_of_table
from prism_assets.kernels.json.block_reader import Way
from prism_assets_tests.kernels.builders import TIME, Lake, an_object

_FILE = """\
schema: log
table: request
key: [request_id]
streams:
  - {{name: mine, url: "s3://staging/in/", {stream}}}
groups: {{front: null, back: {{sequence: [version]}}}}
columns:
  - {{name: request_id, type: string}}
  - {{name: time, type: timestamp}}
  - {{name: page, type: string, group: front}}
  - {{name: version, type: bigint, group: back}}
  - {{name: op, type: string, stored: false}}
window: 3h
lateness: 1h
"""


def a_log(stream: str) -> TableDefinition:
    """Returns the log of changes of a join table with objects of one stream."""
    table = parse_table_file(_FILE.format(stream=stream), "request.yaml")
    columns = tuple(replace(column, column_id=number) for number, column in enumerate(table.columns, 1))
    return changes_of(replace(table, columns=columns))


def a_line(**more: Any) -> dict[str, Any]:
    return {"request_id": "r1", "time": TIME, "page": "/a", "version": 3, **more}


def change(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("request_id", "time")}


def test_a_change_has_its_group_its_identity_and_nothing_of_other_groups(lake: Lake) -> None:
    front = lake.both(an_object(a_line(), a_line()), a_log("group: front"))
    assert [change(row) for row in front.rows] == [
        {"page": "/a", "version": None, "_p_group": "front", "_p_deleted": False, "_p_object": 7, "_p_line": number}
        for number in (1, 2)
    ]
    back = lake.both(an_object(a_line()), a_log("group: back"), staging_object_id=8)
    assert [change(row) for row in back.rows] == [
        {"page": None, "version": 3, "_p_group": "back", "_p_deleted": False, "_p_object": 8, "_p_line": 1}
    ]


def test_the_condition_of_a_stream_says_which_lines_delete_and_null_is_no(lake: Lake) -> None:
    log = a_log("group: back, delete: \"op = 'D'\"")
    outcome = lake.both(an_object(a_line(op="D"), a_line(op="U"), a_line(), a_line(op=None)), log)
    assert [row["_p_deleted"] for row in outcome.rows] == [True, False, False, False]


def test_a_line_of_which_nobody_can_tell_whether_it_deletes_is_set_aside(lake: Lake) -> None:
    log = a_log('group: back, delete: "CAST(op AS INTEGER) = 1"')
    outcome = lake.both(an_object(a_line(op="1"), a_line(op="x")), log)
    assert [row["_p_deleted"] for row in outcome.rows] == [True]
    assert outcome.reasons == {"null_in_required": 1}
    assert outcome.quarantined[0]["column"] == "_p_deleted"


def test_a_change_without_a_key_is_set_aside(lake: Lake) -> None:
    outcome = lake.both(an_object(a_line(request_id=None), a_line()), a_log("group: front"))
    assert (outcome.reasons, len(outcome.rows)) == ({"null_in_required": 1}, 1)


def test_all_starts_of_an_object_give_the_same_bytes(lake: Lake) -> None:
    log = a_log("group: back, delete: \"op = 'D'\"")
    content = an_object(a_line(), a_line(op="D"))
    assert lake.convert(content, log).stored == lake.convert(content, log, way=Way.LINES).stored
    assert lake.convert(content, log).result.objects[0].row_count == 2


@pytest.mark.parametrize(
    ("delete", "told"),
    [
        ("op", "streams[0].delete: it must be true or false, and is of DuckDB's type VARCHAR"),
        ("opp = 'D'", "streams[0].delete: there is no column opp above this one; did you mean op? (at character 11)"),
    ],
)
def test_what_is_wrong_with_a_delete_is_told_with_its_place(delete: str, told: str) -> None:
    assert f"request.yaml:5: {told}" in problems_of_table(a_log(f'group: back, delete: "{delete}"'))
