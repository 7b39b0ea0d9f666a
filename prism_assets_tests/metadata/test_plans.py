"""Frequent queries of sensors read indexes, in a lake that has run for long."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, event

from prism_assets.domain.tables.accepted import DateRange
from prism_assets.metadata.database import Database
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_queue, small_objects
from prism_assets.metadata.iceberg import iceberg_figures, iceberg_tables
from prism_assets.metadata.intake import delayed, intake_figures, streams
from prism_assets.metadata.records import record_objects
from prism_assets_tests.postgres import PostgresServer

TABLES = list(range(1, 21))
NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)

# 20 tables of 300 days with 10 small objects each. The last day of each is open, the 10 before are closed and not
# merged; all others are switched and at rest, but for the 100th, for which something came late. Iceberg lists
# all of it but the last object of each open day. Beside them the records of a join table.
STATE = """
SET LOCAL session_replication_role = replica;
CREATE TEMPORARY TABLE days ON COMMIT DROP AS SELECT t, d, (t - 1) * 300 + d AS p FROM generate_series(1, 20) t,
    generate_series(1, 300) d;
INSERT INTO prism_partitions (prism_partition_id, prism_table_id, partition_date, desired_manifest_version,
    last_live_object_id, switched, closing_batch_id, last_object_id)
    OVERRIDING SYSTEM VALUE SELECT p, t, date '2025-01-01' + d,
    CASE WHEN d < 290 THEN p * 10 - (d = 100)::int ELSE 0 END, CASE WHEN d < 300 THEN p * 10 - 2 END, d < 290,
    CASE WHEN d < 300 THEN 1 END, p * 10 FROM days;
INSERT INTO prism_publications (prism_partition_id, publisher, version, published_object_id, revision, dirty)
    SELECT p, 'glue', CASE WHEN d < 290 THEN p * 10 - (d = 100)::int ELSE 0 END,
    CASE WHEN d < 300 THEN p * 10 - (d = 100)::int ELSE 0 END, 0, d = 100 FROM days;
INSERT INTO prism_publications (prism_partition_id, publisher, version, published_object_id, revision, dirty)
    SELECT p, 'iceberg', CASE WHEN d < 290 THEN p * 10 ELSE 0 END, p * 10 - (d = 300)::int, 0, d = 300 FROM days;
INSERT INTO prism_small_objects (prism_small_object_id, prism_staging_object_id, prism_partition_id, delayed,
    content_length, upload_start_time, row_count, min_time, max_time, fingerprint, definition_version)
    OVERRIDING SYSTEM VALUE
    SELECT p * 10 - n, p * 10 - n, p, n = 0 AND d %% 5 = 0, 20000, now(), 200, now(), now(), 1, 1
    FROM days, generate_series(0, 9) n;
INSERT INTO prism_merge_jobs (prism_partition_id, schedule_time)
    SELECT p, timestamptz '2026-03-01 13:00Z' FROM days;
UPDATE prism_merge_jobs SET schedule_time = timestamptz '2026-03-01 11:00Z' WHERE prism_partition_id = 100;
UPDATE prism_merge_jobs SET ongoing_mark = prism_merge_job_id, lease_token = gen_random_uuid(),
    heartbeat_time = timestamptz '2026-03-01 11:00Z' WHERE prism_partition_id = 400;
INSERT INTO prism_rewrites (prism_table_id, kind, definition_version, state, worker)
    SELECT 21, 'fold', 1, 'done', 'w' FROM generate_series(1, 1000);
INSERT INTO prism_record_objects (prism_table_id, prism_partition_id, date, part, bucket_number, cohort, fold_id,
    content_length, row_count, fingerprint, file_format, definition_version)
    SELECT 21, 6000 + d, date '2025-01-01' + d, 'visible', b, 0, d, 20000, 200, 1, 1, 1
    FROM generate_series(1, 300) d, generate_series(0, 15) b;
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


def plan_of(database: Database, ask: Callable[[Connection], object]) -> str:
    """How PostgreSQL runs the one statement of a question."""
    asked: list[tuple[str, Any]] = []
    with database.begin() as connection:
        event.listen(connection, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
        ask(connection)
        ((statement, parameters),) = asked
        rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", parameters).scalars().all()
    return "\n".join(rows)


QUESTIONS: dict[str, tuple[Callable[[Connection], object], list[str]]] = {
    "delayed days": (
        lambda connection: delayed.delayed_days(connection, TABLES),
        ["prism_publications_dirty", "prism_partitions_unmerged", "prism_small_objects_delayed"],
    ),
    "closing marks": (
        lambda connection: partitions.closing_marks(
            connection, {table: DateRange(date(2025, 2, 1), date(2025, 2, 25)) for table in TABLES}
        ),
        ["prism_partitions_prism_table_id_partition_date_key"],
    ),
    "catalog work": (
        lambda connection: partitions.load_pending(connection, TABLES),
        ["prism_partitions_unswitched", "prism_publications_dirty"],
    ),
    "due merges": (
        lambda connection: merge_queue.due_merges(connection, NOW, 60),
        ["prism_merge_jobs_due", "prism_merge_jobs_running", "prism_partitions_pkey"],
    ),
    "unmerged days": (
        lambda connection: small_objects.unmerged(connection, TABLES, date(2027, 1, 1)),
        ["prism_partitions_unmerged", "prism_small_objects_partition"],
    ),
    "Iceberg tables to commit to": (
        lambda connection: iceberg_tables.count_dirty_days(connection, TABLES),
        ["prism_publications_dirty", "prism_partitions_pkey"],
    ),
    "Iceberg rows that wait": (
        lambda connection: iceberg_figures.waiting_rows(connection, TABLES),
        [
            "prism_publications_dirty",
            "prism_small_objects_partition",
            "prism_record_objects_day",
            "prism_rewrites_pkey",
        ],
    ),
    "days with settled records to merge": (
        lambda connection: record_objects.load_unmerged_days(connection, 21),
        ["prism_record_objects_unmerged", "prism_partitions_pkey", "prism_record_objects_partition"],
    ),
    "live objects that merges left": (
        lambda connection: small_objects.count_unmerged_live(connection, {300 * table - 1: 0 for table in TABLES}),
        ["prism_small_objects_partition"],
    ),
    "partitions to merge": (
        lambda connection: partitions.ids_unmerged(connection, TABLES),
        ["prism_partitions_unmerged"],
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_of_every_tick_reads_indexes_only(lake: Database, name: str) -> None:
    ask, indexes = QUESTIONS[name]
    plan = plan_of(lake, ask)
    assert [index for index in indexes if index not in plan] == [], plan
    assert "Seq Scan" not in plan, plan


def test_days_with_late_rows_are_found_among_many_without(lake: Database) -> None:
    with lake.begin() as connection:
        found = delayed.delayed_days(connection, TABLES)
    days = {(item.date - date(2025, 1, 1)).days: item for item in found if item.table_id == 7}
    assert sorted(days) == [100, 290, 295]
    assert (days[100].unpublished_objects, days[100].unmerged_objects, days[100].unmerged_rows) == (1, 1, 200)
    assert (days[290].unpublished_objects, days[290].unmerged_objects) == (0, 1)
    assert len(found) == 60


# Two tables share a prefix, and only the first has read any of 20,000 objects. A third one has left it.
PREFIX = """
SET LOCAL session_replication_role = replica;
INSERT INTO prism_tables (prism_table_id, schema_name, table_name, create_time, merge_interval, definition_version)
    OVERRIDING SYSTEM VALUE SELECT t, 'log', 't' || t, now(), 3600, 1 FROM generate_series(1, 3) t;
INSERT INTO prism_streams (prism_stream_id, prism_table_id, stream_name, bucket_name, key_prefix, moved)
    OVERRIDING SYSTEM VALUE SELECT t, t, 's', 'b', 'p/', t = 2 FROM generate_series(1, 2) t;
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length,
    first_receive_time, state, lines_in, rows_out, rows_quarantined, definition_version)
    SELECT t, t, 'b', 'p/' || n, 1, now(), CASE t WHEN 1 THEN 'done' ELSE 'pending' END, 0, 0, 0,
    CASE t WHEN 1 THEN 1 END FROM generate_series(1, 2) t, generate_series(1, 20000) n;
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length,
    first_receive_time, state, generation) VALUES (2, 3, 'b', 'p/left', 1, now(), 'failed', 1);
"""


def test_who_has_begun_a_prefix_is_found_by_indexes(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    made = Database(url)
    with made.begin() as connection:
        connection.exec_driver_sql(PREFIX)
    with made.outside_transactions() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    with made.begin() as connection:
        assert sorted(streams.load_begun(connection, [("b", "p/"), ("b", "q/")])) == [(1, 1), (2, 3)]
    plan = plan_of(made, lambda connection: streams.load_begun(connection, [("b", "p/")]))
    assert "prism_staging_objects_read" in plan, plan
    assert "Seq Scan on prism_staging_objects" not in plan, plan
    made.dispose()
    postgres.drop_database(url)


CONVERTED = """
SET LOCAL session_replication_role = replica;
INSERT INTO prism_tables (prism_table_id, schema_name, table_name, create_time, merge_interval, definition_version)
    OVERRIDING SYSTEM VALUE SELECT t, 'log', 't' || t, now(), 3600, 1 FROM generate_series(1, 20) t;
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length,
    first_receive_time, state, lines_in, rows_out, rows_quarantined, finish_time)
    SELECT t, t, 'b', 'p/' || n, 1, now(), 'done', 5, 5, 0, timestamptz '2026-03-01 00:00Z' + n * interval '1 s'
    FROM generate_series(1, 20) t, generate_series(1, 2000) n;
"""


def test_the_last_conversion_with_rows_is_found_without_reading_a_thousand(postgres: PostgresServer) -> None:
    """The exporter asks for all tables every ten seconds."""
    url = postgres.create_database()
    made = Database(url)
    with made.begin() as connection:
        connection.exec_driver_sql(CONVERTED)
    with made.outside_transactions() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    with made.begin() as connection:
        found = intake_figures.last_rows(connection, TABLES)
    assert {item.time for item in found} == {datetime(2026, 3, 1, 0, 33, 20, tzinfo=timezone.utc)}
    assert (len(found), any(item.is_older for item in found)) == (20, False)
    plan = plan_of(made, lambda connection: intake_figures.last_rows(connection, TABLES))
    assert re.search(r"prism_staging_objects_done.* rows=1(\.00)? loops=20", plan), plan
    made.dispose()
    postgres.drop_database(url)


LAKE = """
SET LOCAL session_replication_role = replica;
INSERT INTO prism_tables (prism_table_id, schema_name, table_name, create_time, merge_interval, definition_version)
    OVERRIDING SYSTEM VALUE SELECT t, 'log', 't' || t, now(), 3600, 1 FROM generate_series(1, 20) t;
INSERT INTO prism_table_definitions (prism_table_id, version, definition, create_time)
    SELECT t, 1, '{"columns": [{"name": "time", "type": "timestamp", "column_id": 1}], "partition_column": "time"}',
    now() FROM generate_series(1, 20) t;
INSERT INTO prism_lake_mappings (prism_table_id, definition_version) SELECT t, 1 FROM generate_series(1, 20) t;
INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, fingerprint,
    create_time, update_time, min_time, max_time, definition_version)
    SELECT prism_partition_id, b.lower_bound, b.upper_bound, 1, 1, 1, now(), now(), now(), now(), 1
    FROM prism_partitions p,
    LATERAL (VALUES (NULL::bigint, 0::bigint), (0, p.desired_manifest_version)) b (lower_bound, upper_bound)
    WHERE p.desired_manifest_version > 0;
"""
VIEWS = {
    "the objects of a table": "SELECT * FROM prism_lake.ducklake_data_file WHERE table_id = 7",
    "their days": "SELECT * FROM prism_lake.ducklake_file_column_stats WHERE table_id = 7 AND column_id = 1000000",
    "their times": "SELECT * FROM prism_lake.ducklake_file_column_stats WHERE table_id = 7 AND column_id = 1",
}


@pytest.fixture(scope="module")
def shown(lake: Database) -> Database:
    """The same lake as seen by clients of DuckLake."""
    with lake.begin() as connection:
        connection.exec_driver_sql(LAKE)
    with lake.outside_transactions() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    return lake


@pytest.mark.parametrize("name", VIEWS)
def test_a_client_of_ducklake_reads_the_objects_of_its_days_by_indexes(shown: Database, name: str) -> None:
    """There are 60,000 objects: 289 days with one merged object, 11 days with ten, and one late object."""
    with shown.begin() as connection:
        rows = connection.exec_driver_sql(VIEWS[name]).all()
        plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS) {VIEWS[name]}").scalars())
    assert len(rows) == 289 + 11 * 10 + 1
    for index in ("prism_merge_ranges_prism_partition_id_upper_bound_key", "prism_small_objects_partition"):
        assert index in plan, plan
    for table in ("prism_small_objects", "prism_merge_ranges", "prism_partitions"):
        assert f"Seq Scan on {table}" not in plan, plan
    assert "Hash Join" not in plan, plan
