"""The SQL of the questions, run by DuckDB on known rows."""

from __future__ import annotations

from datetime import date, datetime, timezone

import duckdb
import pytest

from prism_local.readers.questions import AskedTable, Question, sql_of_duckdb

DAY = date(2026, 11, 20)


def a_table(*, added_column: str | None = "region", snapshot_id: int | None = 7) -> AskedTable:
    return AskedTable(
        name="api_log",
        key="call_id",
        identifier="log_iceberg.api_log",
        metadata_location="s3://lake/api_log/metadata/1.metadata.json",
        day=DAY,
        added_column=added_column,
        snapshot_id=snapshot_id,
    )


def answered(question: Question) -> list[tuple[object, ...]]:
    rows = [
        (1, datetime(2026, 11, 20, 8, tzinfo=timezone.utc), None),
        (2, datetime(2026, 11, 20, 10, tzinfo=timezone.utc), "jp"),
        (3, datetime(2026, 11, 21, 8, tzinfo=timezone.utc), "jp"),
    ]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE calls (call_id VARCHAR, time TIMESTAMPTZ, region VARCHAR, dt DATE)")
        values = [[f"{number:012d}-0f", time, region, time.date()] for number, time, region in rows]
        connection.executemany("INSERT INTO calls VALUES (?, ?, ?, ?)", values)
        return connection.execute(sql_of_duckdb(a_table(), question, "calls")).fetchall()


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Question.ALL_ROWS, {(3, 3, 6, 14)}),
        (Question.BY_DAY, {(DAY, 2, 3), (date(2026, 11, 21), 1, 3)}),
        (Question.ONE_DAY, {(2, 2, 3, 5)}),
        (Question.TIME_RANGE, {(1, 1, 1, 1)}),
        (Question.SINCE_1990, {(3, 3, 6, 14)}),
        (Question.ADDED_COLUMN, {(None, 1, 1), ("jp", 2, 5)}),
        (Question.SNAPSHOT, {(3, 3, 6, 14)}),
    ],
)
def test_each_question_counts_its_rows_and_sums_their_numbers(
    question: Question, expected: set[tuple[object, ...]]
) -> None:
    assert set(answered(question)) == expected


def test_a_table_is_asked_only_what_it_can_answer() -> None:
    assert list(a_table().questions) == list(Question)
    poor = list(a_table(added_column=None, snapshot_id=None).questions)
    assert set(Question) - set(poor) == {Question.ADDED_COLUMN, Question.SNAPSHOT}


def test_only_the_question_about_the_snapshot_names_one() -> None:
    table = a_table()
    assert table.as_json(Question.SNAPSHOT)["snapshot_id"] == 7
    assert table.as_json(Question.ALL_ROWS)["snapshot_id"] is None
