"""Faults of a catalog that is built or used the naive way, and their absence in ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import text

from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.names import TableName
from prism_assets.metadata.database import Database
from prism_assets.metadata.tables import tables
from prism_assets.stages.merge.run import merge_one_by_one
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.lake import LakeOfTest, with_other
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession, StatementFailed

BY_REGION = "SELECT region, count(*) FROM {}.log.events GROUP BY 1 ORDER BY 1"
REGION = "{name: region, type: string, length: 20}"


def arrive(world: World, hour: int = 12, **more: Any) -> None:
    """Five rows of an hour, committed."""
    world.drop(some_rows(5, utc(f"2026-03-01T{hour}:00"), **more))
    world.stream(f"2026-03-01T{hour}:10")


def rename(world: World, before: str, after: str) -> None:
    """Renames a column and keeps its source, by an ordinary new version of the definition."""
    with world.context.database.begin() as connection:
        (old,) = tables.load_definitions(connection)
        columns = tuple(
            dataclasses.replace(column, name=after, source=before) if column.name == before else column
            for column in old.columns
        )
        new = dataclasses.replace(old, columns=columns, version=old.version + 1)
        tables.save_version(connection, new, utc("2026-03-01T12:30"))
        tables.save_columns(connection, new, utc("2026-03-01T12:30"))


def test_without_a_mapping_the_day_is_null_in_every_row(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table())
    arrive(world)
    assert lake.query("SELECT DISTINCT dt FROM lake.log.events") == [("2026-03-01",)]
    lake.copy_catalog("naive", changed=with_other("ducklake_data_file", mapping_id="CAST(NULL AS bigint)"))
    lake.attach("naive", schema="naive", owner=True)
    assert lake.query("SELECT DISTINCT dt FROM naive.log.events") == [(None,)]


def test_with_one_mapping_a_table_a_renamed_column_is_null_in_older_objects(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table(columns=[REGION]))
    arrive(world, region="tokyo")
    rename(world, "region", "area")
    arrive(world, 13, region="osaka")
    by_area = BY_REGION.replace("region", "area")
    assert lake.query(by_area.format("lake")) == [("osaka", 5), ("tokyo", 5)]
    newest = "(SELECT max(mapping_id) FROM prism_lake.ducklake_column_mapping m WHERE m.table_id = f.table_id)"
    lake.copy_catalog("naive", changed=with_other("ducklake_data_file", mapping_id=newest))
    lake.attach("naive", schema="naive", owner=True)
    assert lake.query(by_area.format("naive")) == [("osaka", 5), (None, 5)]


def test_with_mapping_rows_for_columns_alone_every_field_is_null(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table(columns=['{name: account, type: "struct<id: bigint>"}']))
    arrive(world, account={"id": 7})
    query = "SELECT DISTINCT account.id FROM {}.log.events"
    assert lake.query(query.format("lake")) == [(7,)]
    columns = "SELECT * FROM prism_lake.ducklake_name_mapping WHERE parent_column IS NULL"
    lake.copy_catalog("naive", changed={"ducklake_name_mapping": columns})
    lake.attach("naive", schema="naive", owner=True)
    assert lake.query(query.format("naive")) == [(None,)]


def test_a_renamed_column_is_read_through_a_merge_of_both_names(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table(columns=[REGION]))
    arrive(world, region="tokyo")
    assert lake.query(BY_REGION.format("lake")) == [("tokyo", 5)]
    rename(world, "region", "area")
    arrive(world, 13, region="osaka")
    world.merge("2026-03-02T01:00", everything=True)
    world.catalog("2026-03-02T01:10")
    world.merge("2026-03-02T02:00", everything=True)
    assert lake.query("SELECT count(*) FROM lake.log.events") == [(10,)]
    assert lake.query("SELECT area, count(*) FROM lake.log.events GROUP BY 1 ORDER BY 1") == [
        ("osaka", 5),
        ("tokyo", 5),
    ]
    (merged,) = lake.sql("SELECT definition_version FROM prism_merge_ranges WHERE lower_bound IS NOT NULL")
    assert merged == (2,)


def test_mapping_ids_that_are_not_above_the_file_ids_a_session_saw_end_it(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table())
    arrive(world)
    lake.copy_catalog("naive", changed=with_other("ducklake_snapshot", next_file_id="CAST(1 AS bigint) << 61"))
    lake.attach("naive", schema="naive", owner=True)
    assert len(lake.ids()) == len(lake.ids(name="naive")) == 5
    world.apply(a_table(columns=[REGION]))
    arrive(world, 13, region="tokyo")
    assert lake.query(BY_REGION.format("lake")) == [("tokyo", 5), (None, 5)]
    with pytest.raises(StatementFailed, match="Unknown name map id"):
        lake.query(BY_REGION.format("naive"))


def test_a_merge_of_objects_that_are_newer_than_its_run_has_all_their_columns(world: World, lake: LakeOfTest) -> None:
    """The run loads the definitions before the new column, and plans after it."""
    world.apply(a_table())
    arrive(world)
    world.catalog("2026-03-02T01:00")
    running = merge_one_by_one(world.context, now=utc("2026-03-02T02:00"), ignore_schedule=True)
    next(running)
    world.apply(a_table(columns=[REGION]))
    arrive(world, 13, region="tokyo")
    assert sum(report.rows for report in running) == 10
    assert lake.sql("SELECT definition_version FROM prism_merge_ranges WHERE lower_bound IS NOT NULL") == [(2,)]
    assert lake.query(BY_REGION.format("lake")) == [("tokyo", 5), (None, 5)]


def files_of(world: World) -> set[Path]:
    return {path for path in (world.root / "buckets" / "lake").rglob("*") if path.is_file()}


WRITERS = {
    "DELETE": "DELETE FROM lake.log.events WHERE id > 0",
    "INSERT": "INSERT INTO lake.log.events (id) VALUES (1)",
    "CREATE TABLE": "CREATE TABLE lake.log.made (a int)",
    "ALTER TABLE": "ALTER TABLE lake.log.events ADD COLUMN b int",
    "DROP TABLE": "DROP TABLE lake.log.events",
    "merge_adjacent_files": "CALL ducklake_merge_adjacent_files('lake')",
    "expire_snapshots": "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "cleanup_old_files": "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    "delete_orphaned_files": "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)",
    "rewrite_data_files": "CALL ducklake_rewrite_data_files('lake')",
    "flush_inlined_data": "CALL ducklake_flush_inlined_data('lake')",
}
FIND_NOTHING = ("expire_snapshots", "cleanup_old_files", "delete_orphaned_files", "flush_inlined_data")


@pytest.mark.parametrize("options", ["READ_ONLY", ""])
@pytest.mark.parametrize("name", WRITERS)
def test_the_role_is_refused_all_that_writes_or_finds_nothing_to_do(
    lake_of_all: LakeOfTest, new_session: Callable[[], DuckDBSession], name: str, options: str
) -> None:
    """Also in sessions not declared as read-only. No object appears, disappears, or is listed for deletion."""
    before, shown = files_of(lake_of_all.world), lake_of_all.sql("TABLE prism_lake.ducklake_data_file")
    with new_session() as session:  # what the extension does not expect ends the whole instance
        lake = dataclasses.replace(lake_of_all, session=session)
        lake.attach(options=options)
        try:
            found = lake.query(WRITERS[name])
        except StatementFailed:
            found = None
    assert found in ((None, []) if name in FIND_NOTHING else (None,))
    assert files_of(lake_of_all.world) == before
    assert lake_of_all.sql("TABLE prism_lake.ducklake_data_file") == shown


@pytest.fixture(scope="module")
def world_of_all(
    services: Mapping[str, str], postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Two unmerged objects of a day, for tests without changes."""
    url = postgres.create_database()
    made = World.create(tmp_path_factory.mktemp("lake"), url, services["PRISM_GLUE_ENDPOINT"])
    made.apply(a_table())
    arrive(made)
    arrive(made, 13)
    yield made
    made.close()
    postgres.drop_database(url)


@pytest.fixture
def lake_of_all(world_of_all: World, new_lake: Callable[[World], LakeOfTest]) -> LakeOfTest:
    return new_lake(world_of_all)


def test_an_owner_who_writes_to_a_catalog_of_tables_leaves_strange_objects(world: World, lake: LakeOfTest) -> None:
    """For this reason nobody attaches as the owner: the role is refused the same statement."""
    world.apply(a_table())
    arrive(world)
    before = files_of(world)
    lake.copy_catalog("strange", kind="TABLE")
    lake.attach("strange", schema="strange", options="DATA_INLINING_ROW_LIMIT 0", owner=True)
    try:
        lake.query("DELETE FROM strange.log.events WHERE id % 2 = 0")
    finally:
        lake.detach("strange")
    assert files_of(world) - before


def test_with_another_data_path_the_objects_of_the_lake_are_taken_for_orphans(world: World, lake: LakeOfTest) -> None:
    """An empty path has no orphans. The path of the lake lists objects that the reader's key must not delete."""
    world.apply(a_table())
    arrive(world)
    world.catalog("2026-03-02T01:00")
    world.merge("2026-03-02T02:00", everything=True)
    listing = "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)"
    lake.attach(options="")
    assert lake.query(listing) == []
    whole = str(world.root / "buckets" / "lake") + "/"
    lake.attach(options=f"DATA_PATH '{whole}', OVERRIDE_DATA_PATH true")
    assert [path for (path,) in lake.query(listing) if "/live/dt=2026-03-01/prism-" in path]
    lake.attach(options=f"READ_ONLY, DATA_PATH '{whole}', OVERRIDE_DATA_PATH true")
    with pytest.raises(StatementFailed):
        lake.query(listing.replace(", dry_run => true", ""))
    assert len(lake.ids()) == 5


def test_the_catalog_says_which_version_it_is_and_no_attach_changes_it(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table())
    arrive(world)
    before = lake.sql("TABLE prism_lake.ducklake_metadata")
    assert ("version", "1.0", None, None) in before
    lake.attach(options="READ_ONLY, AUTOMATIC_MIGRATION true")
    assert len(lake.ids()) == 5
    assert lake.sql("TABLE prism_lake.ducklake_metadata") == before


@pytest.fixture(scope="module")
def empty(postgres: PostgresServer) -> Iterator[Database]:
    url = postgres.create_database()
    made = Database(url)
    yield made
    made.dispose()
    postgres.drop_database(url)


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,63}", fullmatch=True)
IDS = st.integers(1, (1 << 62) - 1)
DAYS = st.dates(date(1, 1, 1), date(9999, 12, 31))

FILL = """
SET LOCAL session_replication_role = replica;
INSERT INTO prism_installation (installation_id, bucket_name, key_prefix, endpoint, create_time)
    VALUES ('i', 'lake', %(prefix)s, %(endpoint)s, now());
INSERT INTO prism_tables (prism_table_id, schema_name, table_name, physical_schema_name, physical_table_name,
    create_time, merge_interval, definition_version)
    OVERRIDING SYSTEM VALUE VALUES (1, %(schema)s, %(table)s, %(physical_schema)s, %(physical_table)s, now(), 1, 1);
INSERT INTO prism_table_definitions VALUES (1, 1, '{"columns": [], "partition_column": "time"}', now());
INSERT INTO prism_lake_mappings (prism_table_id, definition_version) VALUES (1, 1);
INSERT INTO prism_partitions (prism_partition_id, prism_table_id, partition_date, desired_manifest_version,
    last_object_id) OVERRIDING SYSTEM VALUE VALUES (1, 1, %(day)s, %(upper)s, %(last)s);
INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, fingerprint,
    create_time, update_time, rewrite_id, definition_version)
    VALUES (1, 0, %(upper)s, 1, 1, 1, now(), now(), %(revision)s, 1);
INSERT INTO prism_small_objects (prism_small_object_id, prism_staging_object_id, prism_partition_id, delayed,
    generation, rewrite_id, content_length, upload_start_time, row_count, min_time, max_time, fingerprint,
    definition_version) OVERRIDING SYSTEM VALUE
    VALUES (%(last)s, %(staging)s, 1, %(delayed)s, %(generation)s, %(revision)s, 1, now(), 1, now(), now(), 1, 1);
"""


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    name=st.builds(TableName, NAMES, NAMES, st.none() | NAMES, st.none() | NAMES),
    prefix=st.sampled_from(["", "lake/", "a b/ü/"]),
    day=DAYS,
    upper=IDS,
    staging=st.integers(1, (1 << 63) - 1),
    counts=st.tuples(st.sampled_from([0, 1, 12, (1 << 31) - 1]), st.sampled_from([0, 1, 12, (1 << 31) - 1])),
    delayed=st.booleans(),
)
def test_postgresql_builds_every_key_as_python_does(
    empty: Database,
    name: TableName,
    prefix: str,
    day: date,
    upper: int,
    staging: int,
    counts: tuple[int, int],
    delayed: bool,
) -> None:
    generation, revision = counts
    values = {
        "prefix": prefix, "endpoint": "https://s3", "schema": name.schema, "table": name.table, "day": day,
        "physical_schema": name.physical_schema, "physical_table": name.physical_table, "upper": upper,
        "last": upper + 1, "staging": staging, "delayed": delayed, "generation": generation, "revision": revision,
    }  # fmt: skip
    keys = TableKeys("lake", prefix, name)
    wanted = {
        keys.merged_object(day, 0, upper, revision),
        keys.small_object(day, staging, delayed=delayed, generation=generation, rewrite_id=revision),
    }
    with empty.begin() as connection:
        for statement in FILL.split(";\n"):
            if statement.strip():
                used = {key: value for key, value in values.items() if f"%({key})s" in statement}
                connection.exec_driver_sql(statement, used)
        rows = connection.execute(
            text(
                "SELECT t.path, f.path FROM prism_lake.ducklake_data_file f "
                "JOIN prism_lake.ducklake_table t USING (table_id)"
            )
        )
        found = {root + path for root, path in rows}
        connection.rollback()
    assert found == {f"s3://lake/{key}" for key in wanted}


def test_there_are_all_tables_of_the_version_with_their_columns(
    empty: Database, duckdb_session: DuckDBSession, tmp_path: Path
) -> None:
    """As the extension itself creates them."""
    duckdb_session.query(f"ATTACH 'ducklake:{tmp_path}/fresh.db' AS fresh (DATA_PATH '{tmp_path}/data/')")
    duckdb_session.query("DETACH fresh")
    duckdb_session.query(f"ATTACH '{tmp_path}/fresh.db' AS fresh")
    wanted = duckdb_session.query(
        "SELECT table_name, column_name, lower(data_type) FROM duckdb_columns() "
        "WHERE database_name = 'fresh' AND table_name LIKE 'ducklake_%' ORDER BY table_name, column_index"
    )
    duckdb_session.query("DETACH fresh")
    with empty.begin() as connection:
        rows = connection.execute(
            text(
                "SELECT table_name, column_name, CASE data_type WHEN 'character varying' THEN 'varchar' "
                "ELSE data_type END FROM information_schema.columns WHERE table_schema = 'prism_lake' "
                'ORDER BY table_name COLLATE "C", ordinal_position'
            )
        )
        found = [tuple(row) for row in rows]
    assert len({table for table, _, _ in wanted}) == 28
    assert found == wanted
