"""Doctor on tables of the published design: it names the places where that design loses rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from prism_assets.stages.doctor.run import run_doctor
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

# Names and columns of the published design, and nothing else.
SCHEMA = """
CREATE TABLE prism_tables (prism_table_id bigint PRIMARY KEY, schema_name text, table_name text,
    create_time timestamptz, merge_interval integer, physical_schema_name text, physical_table_name text);
CREATE TABLE prism_streams (prism_stream_id bigint PRIMARY KEY, prism_table_id bigint, stream_name text,
    enabled boolean, discard boolean);
CREATE TABLE prism_staging_objects (prism_staging_object_id bigint PRIMARY KEY, prism_stream_id bigint,
    bucket_name text, object_key text, send_time timestamptz, first_receive_time timestamptz);
CREATE TABLE prism_partitions (prism_partition_id bigint PRIMARY KEY, prism_table_id bigint, partition_date date,
    current_manifest_version bigint DEFAULT -1, ongoing_manifest_version bigint,
    desired_manifest_version bigint DEFAULT 0, last_live_object_id bigint, switched boolean DEFAULT false);
CREATE TABLE prism_small_objects (prism_small_object_id bigint PRIMARY KEY, prism_staging_object_id bigint,
    prism_partition_id bigint, delayed boolean, content_length bigint, upload_start_time timestamptz);
CREATE TABLE prism_merge_jobs (prism_merge_job_id bigint PRIMARY KEY, prism_partition_id bigint,
    schedule_time timestamptz, ongoing_mark bigint, heartbeat_time timestamptz);
CREATE TABLE prism_merge_ranges (prism_merge_range_id bigint PRIMARY KEY, prism_partition_id bigint, lower_bound bigint,
    upper_bound bigint, content_length bigint, create_time timestamptz, update_time timestamptz);
"""
# A day switched to the merged object of its four small objects, and an open day.
SOUND = """
INSERT INTO prism_tables VALUES (1, 'log', 'events', now(), 3600, NULL, NULL);
INSERT INTO prism_partitions VALUES (1, 1, '2026-03-01', 4, NULL, 4, 4, true),
    (2, 1, '2026-03-02', 0, NULL, 0, NULL, false);
INSERT INTO prism_small_objects SELECT n, n, 1 + (n > 4)::integer, false, 100, '2026-03-01 12:00Z'
    FROM generate_series(1, 6) n;
INSERT INTO prism_merge_ranges VALUES (1, 1, NULL, 0, 0, now(), '2026-03-02 01:00Z'),
    (2, 1, 0, 4, 400, now(), '2026-03-02 01:00Z');
"""


@pytest.fixture
def published(services: Mapping[str, str], postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    """An installation of the published design without any fault."""
    url = postgres.create_database()
    made = World.create(tmp_path, url, services["PRISM_GLUE_ENDPOINT"])
    # The database is made with our tables.
    change(made, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", SCHEMA, SOUND)
    try:
        yield made
    finally:
        made.close()
        postgres.drop_database(url)


def change(world: World, *statements: str) -> None:
    with world.context.database.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def found(world: World) -> set[tuple[str | None, str]]:
    report = run_doctor(world.context)
    assert report.published_design
    assert report.unseen == ()
    assert all((item.table, str(item.date)) == ("log.events", "2026-03-01") for item in report.findings)
    return {(item.invariant, item.kind) for item in report.findings}


def test_nothing_is_found_where_nothing_is_wrong(published: World) -> None:
    assert found(published) == set()


def test_h2_a_live_object_behind_the_close_is_found(published: World) -> None:
    change(published, "UPDATE prism_partitions SET last_live_object_id = 3 WHERE prism_partition_id = 1")
    assert found(published) == {("I3", "live_behind_close")}


def test_h3_an_object_that_came_into_a_range_after_it_was_written_is_found(published: World) -> None:
    change(published, "UPDATE prism_small_objects SET upload_start_time = '2026-03-02 01:00:01Z' "
           "WHERE prism_small_object_id = 2")  # fmt: skip
    assert found(published) == {("I1", "late_in_range")}


def test_h6_late_rows_that_no_merge_will_ever_take_are_found(published: World) -> None:
    change(published, "INSERT INTO prism_small_objects VALUES (7, 7, 1, true, 100, '2026-03-09 12:00Z')")
    assert found(published) == {("I10", "never_merged")}
    change(published, "INSERT INTO prism_merge_jobs VALUES (1, 1, '2026-03-09 13:00Z', 0, NULL)")
    assert found(published) == set()


def test_a_gap_between_ranges_is_found(published: World) -> None:
    change(published, "UPDATE prism_merge_ranges SET lower_bound = 2 WHERE lower_bound = 0")
    assert found(published) == {("I5", "broken_chain")}


def test_a_version_that_is_shown_and_not_merged_is_found(published: World) -> None:
    change(published, "UPDATE prism_partitions SET current_manifest_version = 6 WHERE prism_partition_id = 1")
    assert found(published) == {("I4", "current_beyond_desired")}


def test_a_version_that_is_desired_and_not_merged_is_found(published: World) -> None:
    change(published, "UPDATE prism_partitions SET desired_manifest_version = 6 WHERE prism_partition_id = 1")
    assert found(published) == {("I5", "desired_without_ranges")}
