"""The two tables of a join table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prism_assets.domain.names import TableName
from prism_assets.domain.records.change_log import changes_of, records_of, tables_of
from prism_assets.domain.records.joins import OF_CHANGES, hidden_column_id
from prism_assets.domain.streams.sources import constant
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.tables.options import ChangeLog
from prism_assets_tests.domain.records.test_join_file import GOOD, PATH

TABLE = parse_table_file(GOOD + "keep: \"op <> 'X'\"\nretention_days: 90\nwas: log.requests\n", PATH)


def sources(table: TableDefinition, stream: str) -> dict[str, str]:
    """What each stored column of a stream is made of."""
    (found,) = (one for one in table.streams if one.name == stream)
    return {column.name: column.value or column.source for column in table.for_stream(found).columns}


def test_other_tables_are_one() -> None:
    log = replace(TABLE, join=None)
    assert tables_of(log) == (log,)
    with pytest.raises(ValueError, match=r"log\.request is no join table"):
        changes_of(log)


def test_records_are_fed_by_no_stream_and_read_from_no_line() -> None:
    records = records_of(TABLE)
    assert (str(records.name), records.join, records.streams) == ("log.request", TABLE.join, ())
    assert (records.unstored, records.computed, records.keep) == ((), (), None)
    assert (records.retention_days, records.merge.sort_by) == (90, ("request_id",))
    assert [column.name for column in records.columns] == [column.name for column in TABLE.columns]


def test_changes_have_a_name_a_retention_and_a_lateness_of_their_own() -> None:
    changes = changes_of(TABLE)
    assert (str(changes.name), str(changes.was), changes.records) == (
        "log.request_changes", "log.requests_changes", TableName("log", "request"),
    )  # fmt: skip
    assert (changes.join, changes.change_log) == (None, ChangeLog(lateness_seconds=3_600))
    assert (changes.retention_days, changes.keep) == (7, "op <> 'X'")


def test_no_change_is_too_late_for_records_that_live_for_ever() -> None:
    text = GOOD.replace("window: 3h", "window: forever")
    assert changes_of(parse_table_file(text, PATH)).change_log == ChangeLog(lateness_seconds=None)


def test_a_stream_fills_its_own_group_alone() -> None:
    changes = changes_of(TABLE)
    nothing = constant(None)
    assert sources(changes, "front") == {
        "request_id": "request_id", "time": "time", "sent_at": "sent_at", "page": "page", "version": nothing,
        "tries": nothing, "_p_group": constant("front"), "_p_deleted": constant(False), "_p_object": "@object_id",
        "_p_line": "@line",
    }  # fmt: skip
    assert sources(changes, "back") == {
        "request_id": "request_id", "time": "time", "sent_at": nothing, "page": nothing, "version": "version",
        "tries": "tries", "_p_group": constant("back"), "_p_deleted": "coalesce((op = 'D'\n), false)",
        "_p_object": "@object_id", "_p_line": "@line",
    }  # fmt: skip


def test_a_computed_column_of_another_group_is_not_computed() -> None:
    text = GOOD.replace("{name: page, type: string,", '{name: page, type: string, value: "lower(request_id)",')
    changes = changes_of(parse_table_file(text, PATH))
    front, back = (changes.for_stream(stream).computed for stream in changes.streams)
    assert (front, back) == (("page",), ("_p_deleted",))


def test_hidden_columns_have_the_same_ids_in_all_tables_and_others_those_of_the_records() -> None:
    with_ids = tuple(replace(column, column_id=number) for number, column in enumerate(TABLE.columns, 1))
    changes = changes_of(replace(TABLE, columns=with_ids))
    assert changes.columns[: len(with_ids)] == with_ids
    assert {column.name: column.column_id for column in changes.columns[len(with_ids) :]} == {
        name: hidden_column_id(name) for name in OF_CHANGES
    }
    assert all(column.required for column in changes.columns[len(with_ids) :])


def test_both_are_stored_and_read_again() -> None:
    for table in tables_of(TABLE):
        assert TableDefinition.from_json(table.to_json()) == table
