"""The SQL of the questions, run by DuckDB on known rows."""

from __future__ import annotations

from datetime import date, datetime, timezone

import duckdb
import pytest

from prism_local.readers.questions import AskedTable, Nested, Question, sql_of_duckdb

DAY = date(2026, 11, 20)


NESTED = Nested(
    leaf=("user", "plan", "code"), number=("user", "id"), below=10, list="items", element="sku", amount="quantity"
)


def a_table(
    *, added_column: str | None = "region", snapshot_id: int | None = 7, nested: Nested | None = NESTED
) -> AskedTable:
    return AskedTable(
        name="api_log",
        key="call_id",
        identifier="log_iceberg.api_log",
        metadata_location="s3://lake/api_log/metadata/1.metadata.json",
        day=DAY,
        added_column=added_column,
        snapshot_id=snapshot_id,
        nested=nested,
    )


def answered(question: Question) -> list[tuple[object, ...]]:
    cups, pens = ({"sku": "cup", "quantity": 2}, {"sku": "pen", "quantity": 1})
    rows = [
        (1, datetime(2026, 11, 20, 8, tzinfo=timezone.utc), None, {"id": 3, "plan": {"code": "pro"}}, [cups, None]),
        (2, datetime(2026, 11, 20, 10, tzinfo=timezone.utc), "jp", {"id": 30, "plan": None}, [cups, pens]),
        (3, datetime(2026, 11, 21, 8, tzinfo=timezone.utc), "jp", None, None),
    ]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE TABLE calls (call_id VARCHAR, time TIMESTAMPTZ, region VARCHAR, user "
            "STRUCT(id BIGINT, plan STRUCT(code VARCHAR)), items STRUCT(sku VARCHAR, quantity INTEGER)[], dt DATE)"
        )
        values = [[f"{number:012d}-0f", time, *others, time.date()] for number, time, *others in rows]
        connection.executemany("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?)", values)
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
        (Question.STRUCT_LEAF, {("pro", 1, 1), (None, 2, 5)}),
        (Question.LEAF_FILTER, {(1, 1, 1, 1)}),
        (Question.UNNESTED, {("cup", 2, 4), ("pen", 1, 1)}),
    ],
)
def test_each_question_counts_its_rows_and_sums_their_numbers(
    question: Question, expected: set[tuple[object, ...]]
) -> None:
    assert set(answered(question)) == expected


def test_a_table_is_asked_only_what_it_can_answer() -> None:
    assert list(a_table().questions) == list(Question)
    poor = set(a_table(added_column=None, snapshot_id=None, nested=None).questions)
    of_nested = {Question.STRUCT_LEAF, Question.LEAF_FILTER, Question.UNNESTED}
    assert set(Question) - poor == {Question.ADDED_COLUMN, Question.SNAPSHOT, *of_nested}


def test_only_the_question_about_the_snapshot_names_one() -> None:
    table = a_table()
    assert table.as_json(Question.SNAPSHOT)["snapshot_id"] == 7
    assert table.as_json(Question.ALL_ROWS)["snapshot_id"] is None
