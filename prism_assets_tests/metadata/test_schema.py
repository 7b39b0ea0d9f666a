"""The schema: its text, and what the database itself refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from prism_assets import metadata
from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.errors import InvariantBroken, TerminalError
from prism_assets.metadata.database import Database
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.tables import tables
from prism_assets_tests.metadata.rows import NOON, Rows
from prism_assets_tests.postgres import PostgresServer

SCHEMA = Path(metadata.__file__).with_name("schema.sql")


def tables_of(database: Database) -> set[str]:
    with database.begin() as connection:
        statement = text("SELECT tablename FROM pg_tables WHERE tablename LIKE 'prism%'")
        return set(connection.execute(statement).scalars())


def test_a_comment_above_each_table_says_what_a_row_of_it_is() -> None:
    lines = SCHEMA.read_text("utf-8").splitlines()
    tables = [number for number, line in enumerate(lines) if line.startswith("CREATE TABLE ")]
    silent = [lines[number] for number in tables if not lines[number - 1].startswith("-- ")]
    assert silent == ["CREATE TABLE IF NOT EXISTS iceberg_namespace_properties ("], "it is one with the table above"
    assert len(tables) > 40


def test_without_tables_a_command_says_what_to_run(postgres: PostgresServer) -> None:
    url = postgres.create_empty_database()
    database = Database(url)
    with pytest.raises(TerminalError, match="run `prism table apply` first"), database.begin() as connection:
        tables.load_definitions(connection)
    database.dispose()
    postgres.drop_database(url)


def test_migrating_twice_changes_nothing(database: Database) -> None:
    before = tables_of(database)
    database.migrate()
    assert tables_of(database) == before


RANGE = (
    "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
    "fingerprint, create_time, update_time, definition_version) VALUES (:p, {}, {}, 1, 1, 1, now(), now(), 1)"
)
SMALL = (
    "INSERT INTO prism_small_objects (prism_staging_object_id, prism_partition_id, delayed, content_length, "
    "upload_start_time, row_count, min_time, max_time, fingerprint, definition_version) VALUES "
    "(:s, :p, false, 1, now(), {}, now(), now(), 1, 1)"
)
JOB = "INSERT INTO prism_merge_jobs (prism_partition_id, schedule_time) VALUES (:p, now())"
CERTIFICATE = (
    "INSERT INTO prism_switch_certificates (prism_partition_id, switch_time, upper_bound, live_objects, live_rows, "
    "live_fingerprint, covered_objects, covered_rows, covered_fingerprint, range_rows, range_fingerprint) "
    "VALUES (:p, now(), 1, 1, 1, 1, 1, {}, {}, {}, {})"
)
STAGING = "UPDATE prism_staging_objects SET {} WHERE prism_staging_object_id = :s"
PARTITION = "UPDATE prism_partitions SET {} WHERE prism_partition_id = :p"

REFUSED = {
    "a range that does not begin where another ends": [RANGE.format("NULL", 0), RANGE.format(5, 9)],
    "a first range without a sentinel": [RANGE.format(0, 5)],
    "a second sentinel": [RANGE.format("NULL", 0), RANGE.format("NULL", 0)],
    "a sentinel elsewhere than 0": [RANGE.format("NULL", 5)],
    "two ranges with one lower bound": [RANGE.format("NULL", 0), RANGE.format(0, 5), RANGE.format(0, 6)],
    "two ranges with one upper bound": [
        RANGE.format("NULL", 0), RANGE.format(0, 5), RANGE.format(5, 6), RANGE.format(5, 6),
    ],
    "an empty range": [RANGE.format("NULL", 0), RANGE.format(0, 0)],
    "a range that runs backwards": [RANGE.format("NULL", 0), RANGE.format(0, 5), RANGE.format(5, 3)],
    "moving an upper bound on which another range stands": [
        RANGE.format("NULL", 0), RANGE.format(0, 5), RANGE.format(5, 9),
        "UPDATE prism_merge_ranges SET upper_bound = 6 WHERE upper_bound = 5",
    ],
    "deleting a range in the middle": [
        RANGE.format("NULL", 0), RANGE.format(0, 5), RANGE.format(5, 9),
        "DELETE FROM prism_merge_ranges WHERE upper_bound = 5",
    ],
    "two waiting jobs of one partition": [JOB, JOB],
    "a job that runs under the mark of another": [
        JOB, "UPDATE prism_merge_jobs SET ongoing_mark = 999, lease_token = gen_random_uuid()",
    ],
    "a running job without a lease": [JOB, "UPDATE prism_merge_jobs SET ongoing_mark = prism_merge_job_id"],
    "a waiting job with a lease": [JOB, "UPDATE prism_merge_jobs SET lease_token = gen_random_uuid()"],
    "a ledger that does not balance": [
        STAGING.format("state = 'done', lines_in = 3, rows_out = 1, rows_quarantined = 1"),
    ],
    "a staging object in a state that is none": [STAGING.format("state = 'lost'")],
    "a claim without a batch": [STAGING.format("state = 'claimed', first_batch_id = 1")],
    "a claim without a first batch": [STAGING.format("state = 'claimed', prism_stream_batch_id = :b")],
    "a claim by a batch that does not exist": [
        STAGING.format("state = 'claimed', prism_stream_batch_id = 999, first_batch_id = 1"),
    ],
    "an object registered twice": [
        "INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length, "
        "first_receive_time) SELECT prism_stream_id, prism_table_id, bucket_name, object_key, 1, now() "
        "FROM prism_staging_objects",
    ],
    "a close without a mark": [PARTITION.format("last_live_object_id = 1")],
    "a switch without a close": [PARTITION.format("switched = true")],
    "a switch of a partition only marked": [PARTITION.format("switched = true, closing_batch_id = 1")],
    "a second partition of one date": [
        "INSERT INTO prism_partitions (prism_table_id, partition_date) SELECT prism_table_id, partition_date "
        "FROM prism_partitions",
    ],
    "a small object without rows": [SMALL.format(0)],
    "two small objects of one staging object and date": [SMALL.format(1), SMALL.format(1)],
    "a small object of nothing": [SMALL.format(1).replace(":s", "999")],
    "a certificate with other rows": [CERTIFICATE.format(2, 1, 1, 1)],
    "a certificate with another fingerprint": [CERTIFICATE.format(1, 1, 1, 2)],
    "a second certificate": [CERTIFICATE.format(1, 1, 1, 1), CERTIFICATE.format(1, 1, 1, 1)],
    "a batch in a state that is none": ["UPDATE prism_stream_batches SET state = 'lost'"],
    "a second table of one name": [
        "INSERT INTO prism_tables (schema_name, table_name, create_time, merge_interval) "
        "VALUES ('log', 'events', now(), 1)",
    ],
    "a second stream at one place": [
        "INSERT INTO prism_streams (prism_table_id, stream_name, bucket_name, key_prefix) "
        "SELECT prism_table_id, 'other', bucket_name, key_prefix FROM prism_streams",
    ],
    "a column id used twice": [
        "INSERT INTO prism_table_columns SELECT prism_table_id, column_id, 'other', 'x', 'bigint', NULL, NULL, NULL, "
        "NULL, false, 9, now(), NULL FROM prism_table_columns",
    ],
    "a column name used twice": [
        "INSERT INTO prism_table_columns SELECT prism_table_id, column_id + 10, name, 'x', 'bigint', NULL, NULL, NULL, "
        "NULL, false, 9, now(), NULL FROM prism_table_columns",
    ],
    "a definition changed under its version": [
        "INSERT INTO prism_table_definitions SELECT prism_table_id, version, '{}', now() FROM prism_table_definitions",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_the_database_itself_refuses(name: str, rows: Rows) -> None:
    table = rows.table()
    (staging,) = rows.staging(table)
    facts: dict[str, Any] = {"p": rows.partition(table), "s": staging, "b": rows.batch().batch_id}
    *before, wrong = REFUSED[name]
    with rows.database.begin() as connection:
        for statement in before:
            connection.execute(text(statement), _needed(statement, facts))
    with pytest.raises(InvariantBroken, match="PostgreSQL refused"), rows.database.begin() as connection:
        connection.execute(text(wrong), _needed(wrong, facts))


def _needed(statement: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if f":{name}" in statement}


def test_a_chain_without_gaps_is_accepted(rows: Rows) -> None:
    partition = rows.partition(rows.table())
    for lower, upper in (("NULL", 0), (0, 5), (5, 9)):
        rows.sql(RANGE.format(lower, upper), p=partition)
    rows.sql("UPDATE prism_merge_ranges SET upper_bound = 12 WHERE upper_bound = 9")
    assert rows.value("SELECT count(*) FROM prism_merge_ranges") == 3


def test_one_job_may_wait_while_another_runs(rows: Rows) -> None:
    partition = rows.partition(rows.table())
    rows.waiting_job(partition)
    rows.claimed_job()
    rows.waiting_job(partition)
    assert rows.value("SELECT count(*) FROM prism_merge_jobs") == 2


def test_a_change_of_a_closed_day_marks_what_catalogs_show_whichever_statement_makes_it(rows: Rows) -> None:
    partition = rows.partition(rows.table())
    rows.sql("UPDATE prism_partitions SET closing_batch_id = 1, last_live_object_id = 1, last_object_id = 1")
    with rows.database.begin() as connection:
        partitions.lock_partition(connection, partition)
        publications.advance(connection, partition, "glue", Publication(0, 1), NOON, dirty=False)
    assert rows.sql("SELECT dirty FROM prism_publications") == [(False,)]
    rows.sql("UPDATE prism_partitions SET last_object_id = greatest(last_object_id, 2)")
    assert rows.sql("SELECT dirty FROM prism_publications") == [(True,)]
