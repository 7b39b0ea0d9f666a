"""Lists of what was set aside read indexes only, in a lake with many objects, whatever is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone

import pytest

from prism_assets.metadata.database import Database
from prism_assets.metadata.intake.quarantine import QuarantineFilter, list_quarantine, unfit_values
from prism_assets_tests.metadata.test_plans import plan_of
from prism_assets_tests.postgres import PostgresServer

# 100,000 staging objects of 20 tables over 100 days. One in ten has a broken line, of table 20 but ten in all; one in a
# thousand of the broken lines is too long. One object in fifty has values that did not fit.
STATE = """
SET LOCAL session_replication_role = replica;
INSERT INTO prism_tables (prism_table_id, schema_name, table_name, create_time, merge_interval) OVERRIDING SYSTEM VALUE
    SELECT t, 'log', 't' || t, now(), 3600 FROM generate_series(1, 20) t;
INSERT INTO prism_staging_objects (prism_staging_object_id, prism_stream_id, prism_table_id, bucket_name, object_key,
    content_length, first_receive_time, state, finish_time, lines_in, rows_out, rows_quarantined, value_errors)
    OVERRIDING SYSTEM VALUE SELECT n, t, t, 'staging', 'k' || n, 1, made, 'done', made, 100, 100 - broken, broken,
    CASE WHEN n %% 50 = 0 THEN '[{"column": "amount", "reason": "unfit", "count": 2}]'::jsonb END
    FROM (SELECT n, n %% 20 + 1 AS t, timestamptz '2026-01-01Z' + n * interval '1 day' / 1000 AS made,
        CASE WHEN n %% 20 = 19 THEN (n < 200)::int ELSE (n %% 10 = 0)::int END AS broken
        FROM generate_series(1, 100000) n) o;
INSERT INTO prism_quarantine (prism_staging_object_id, reason, line_count, create_time)
    SELECT prism_staging_object_id,
    CASE WHEN prism_staging_object_id %% 1000 = 0 THEN 'too_long' ELSE 'bad_json' END, 1, finish_time
    FROM prism_staging_objects WHERE rows_quarantined > 0;
"""


@pytest.fixture(scope="module")
def lake(postgres: PostgresServer) -> Iterator[Database]:
    url = postgres.create_database()
    made = Database(url)
    with made.begin() as connection:
        connection.exec_driver_sql(STATE)
    with made.outside_transactions() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    yield made
    made.dispose()
    postgres.drop_database(url)


FILTERS = {
    "everything": (QuarantineFilter(), 50, "prism_quarantine"),
    "a table": (QuarantineFilter(table_ids=[11], limit=20), 20, "prism_staging_objects_quarantined"),
    "a table with hardly any": (QuarantineFilter(table_ids=[20], limit=20), 10, "prism_staging_objects_quarantined"),
    "two tables": (QuarantineFilter(table_ids=[11, 20], limit=15), 15, "prism_staging_objects_quarantined"),
    "a table and a reason": (QuarantineFilter(table_ids=[1], reasons=["too_long"], limit=10), 10, "prism_quarantine"),
    "a rare reason": (QuarantineFilter(reasons=["too_long"], limit=500), 100, "prism_quarantine_reason"),
    "a day": (QuarantineFilter(day=date(2026, 3, 1), limit=500), 100, "prism_quarantine_time"),
    "a table, a reason and a day": (
        QuarantineFilter(table_ids=[1], reasons=["too_long"], day=date(2026, 3, 1)),
        1,
        "prism_quarantine",
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_list_of_quarantine_reads_an_index(lake: Database, name: str) -> None:
    wanted, count, index = FILTERS[name]
    with lake.begin() as connection:
        rows = list_quarantine(connection, wanted)
    assert len(rows) == count
    assert [row.staging_object_id for row in rows] == sorted((row.staging_object_id for row in rows), reverse=True)
    plan = plan_of(lake, lambda connection: list_quarantine(connection, wanted))
    assert index in plan, plan
    assert "Seq Scan on prism_staging_objects" not in plan, plan
    assert "Seq Scan on prism_quarantine" not in plan, plan


def test_a_list_by_table_is_of_those_tables(lake: Database) -> None:
    with lake.begin() as connection:
        rows = list_quarantine(connection, QuarantineFilter(table_ids=[11, 20], limit=9_999))
    assert {row.table for row in rows} == {"log.t11", "log.t20"}


def test_values_that_did_not_fit_are_counted_by_an_index(lake: Database) -> None:
    since = datetime(2026, 4, 10, tzinfo=timezone.utc)
    with lake.begin() as connection:
        ((table, values),) = unfit_values(connection, [11], since).items()
    assert (table, [(v.column, v.reason, v.count) for v in values]) == (11, [("amount", "unfit", 20)])
    assert "prism_staging_objects_unfit" in plan_of(lake, lambda connection: unfit_values(connection, [11], since))
